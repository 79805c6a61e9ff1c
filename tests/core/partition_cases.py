"""Rules, settings and samples for the tests of `dualml.parallel.partition`; its files are written
to the working folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.parallel.partition import Partition, partition_from
from dualml.parallel.partition.from_file import save_partition

Strategy = st.SearchStrategy[Any]
alphas = st.floats(0.01, 1000)


def weights(ranks: int) -> Strategy:
    found = st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks).filter(any)
    return found.map(lambda w: tuple(one / sum(w) for one in w))


def assigned(labels: list[int], ranks: int) -> Strategy:
    one = st.lists(st.sampled_from(sorted(set(labels))), unique=True)
    return st.just(()) | st.lists(one, min_size=ranks, max_size=ranks)


#: Rule → strategies of its settings for these labels and ranks. Settings that some draws cannot
#: satisfy are in test_partition_errors.py: here ``least`` is 0, or a rank has enough samples.
SETTINGS: dict[str, Callable[[list[int], int], dict[str, Strategy]]] = {
    "contiguous": lambda labels, n: {},
    "round_robin": lambda labels, n: {},
    "random_partition": lambda labels, n: {},
    "random_sampling": lambda labels, n: {"replacement": st.booleans()},
    "distributed_sampler": lambda labels, n: {"drop_last": st.booleans()},
    "fractions": lambda labels, n: {"fractions": weights(n)},
    "label_shards": lambda labels, n: {"shards": st.integers(1, len(labels) // n)},
    "label_classes": lambda labels, n: {
        "classes": st.integers(1, len(set(labels))),
        "assigned": assigned(labels, n),
    },
    "dirichlet_labels": lambda labels, n: {"alpha": alphas, "least": st.just(0)},
    "dirichlet_sizes": lambda labels, n: {"alpha": alphas, "least": st.just(0)},
    "power_law_sizes": lambda labels, n: {"exponent": st.floats(0, 50)},
    "feature_noise": lambda labels, n: {"sigma": st.floats(0, 10)},
    "bootstrap": lambda labels, n: {"whole": st.booleans()},
    "file": lambda labels, n: {"path": st.just("deal.npz")},
}


@st.composite
def cases(draw: st.DrawFn, name: str) -> tuple[Partition, np.ndarray, int]:
    """Draw a rule, labels (some labels may have no sample) and a number of ranks."""
    labels = draw(st.lists(st.sampled_from([-7, 0, 1, 2, 3, 40]), min_size=1, max_size=60))
    ranks = draw(st.integers(1, min(len(labels), 8)))
    chosen = {k: draw(v) for k, v in SETTINGS[name](labels, ranks).items()}
    rule = partition_from({"name": name, "shuffle": draw(st.booleans()), **chosen})
    if name == "file":
        deal_to_file(np.array(labels), ranks, draw(st.integers(0, 99)))
    return rule, np.array(labels), ranks


#: Settings for tests of a single partition: 60 samples of 6 labels over 3 ranks, none empty.
FIXED: dict[str, dict[str, Any]] = {
    "fractions": {"fractions": [0.5, 0.3, 0.2]},
    "dirichlet_labels": {"alpha": 0.5},
    "dirichlet_sizes": {"alpha": 2},
    "file": {"path": "deal.npz"},
}
LABELS = np.arange(60) * 7 % 60 // 10


def deal_to_file(labels: np.ndarray, ranks: int, seed: int = 0, rule: str = "bootstrap") -> None:
    """Write ``deal.npz``, which the rule ``file`` reads in these tests."""
    source = partition_from({"name": rule})
    save_partition(
        Path("deal.npz"), source.partition(len(labels), ranks, seed), labels, "some", source
    )


def fixed(name: str, **more: Any) -> Partition:
    return partition_from({"name": name, **FIXED.get(name, {}), **more})


def refusal_of(call: Any, *arguments: Any) -> str:
    """Return the one-line text of the `UserError` that a call raises."""
    with pytest.raises(UserError) as told:
        call(*arguments)
    text = str(told.value)
    assert "\n" not in text
    return text
