"""A real GeneratorDataset delivers the partition's samples; and the behaviour of MindSpore's own
sampler."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parallel.partition import (
    PARTITIONS,
    Contiguous,
    DistributedSampler,
    Partition,
    partition_from,
)
from dualml.parallel.partition.from_file import save_partition

if "mindspore" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import mindspore.dataset as ds
else:
    ds = pytest.importorskip("mindspore.dataset")

from dualml_ms.parallel.partition import PartitionSampler

PAGE = Path(__file__).resolve().parents[2] / "docs" / "partition.md"
LABELS = np.arange(31) % 4
SETTINGS: dict[str, dict[str, Any]] = {
    "fractions": {"fractions": [0.5, 0.3, 0.2]},
    "dirichlet_labels": {"alpha": 0.5},
    "dirichlet_sizes": {"alpha": 2.0},
    "file": {"path": "deal.npz"},
}


class Numbers:
    """A data source whose sample i is i."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __getitem__(self, index: int) -> np.int64:
        return np.int64(index)

    def __len__(self) -> int:
        return self.n


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_partition(Path("deal.npz"), Contiguous().partition(31, 3), LABELS, "some", Contiguous())


@pytest.fixture
def seeded() -> Iterator[Any]:
    """Call ``mindspore.dataset.config.set_seed``, and undo it afterwards."""
    before = ds.config.get_seed()
    yield ds.config.set_seed
    ds.config.set_seed(before)


def rule_of(name: str) -> Partition:
    return partition_from({"name": name, **SETTINGS.get(name, {})})


def pipeline(sampler: Any, n: int = 31) -> Any:
    return ds.GeneratorDataset(Numbers(n), ["i"], sampler=sampler, python_multiprocessing=False)


def delivered(data: Any) -> list[int]:
    return epochs(data, 1)[0]


def epochs(data: Any, count: int) -> list[list[int]]:
    """Return what one iterator delivers in so many epochs."""
    rows = data.create_tuple_iterator(num_epochs=count, output_numpy=True)
    return [[int(i) for (row,) in rows for i in np.ravel(row)] for _ in range(count)]


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_pipeline_delivers_every_list_in_every_epoch(name: str) -> None:
    rule = rule_of(name)
    for rank in range(3):
        sampler = PartitionSampler(rule, LABELS, 3, rank, seed=5)
        data = pipeline(sampler).batch(4)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            want = rule.partition(LABELS, 3, 5, epoch)[rank].tolist()
            assert delivered(data) == want
            assert len(sampler) == sampler.num_samples == len(want)
        assert sampler.epoch == 1


@pytest.mark.parametrize("name", ["random_sampling", "contiguous"])
def test_one_iterator_of_several_epochs_goes_on_by_itself(name: str) -> None:
    rule = rule_of(name)
    sampler = PartitionSampler(rule, 31, 3, 1, seed=5)
    sampler.set_epoch(4)
    for _ in range(2):  # a new iterator begins where the sampler stands
        found = epochs(pipeline(sampler), 3)
        assert found == [rule.partition(31, 3, 5, epoch)[1].tolist() for epoch in (4, 5, 6)]
    assert sampler.epoch == 4


def test_an_epoch_is_dealt_once_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    deal = Contiguous.partition

    def counting_partition(
        self: Contiguous, samples: Any, ranks: int, seed: int, epoch: int
    ) -> Any:
        calls.append(epoch)
        return deal(self, samples, ranks, seed, epoch)

    monkeypatch.setattr(Contiguous, "partition", counting_partition)
    sampler = PartitionSampler(Contiguous(), 31, 3, 1)
    data = pipeline(sampler)
    assert calls == []
    for epoch in (0, 2):
        sampler.set_epoch(epoch)
        assert len(sampler) == len(list(sampler)) == len(delivered(data)) == 10
    assert calls == [0, 2]


def test_the_number_of_samples_follows_the_epoch() -> None:
    sampler = PartitionSampler(Changing(), 31, 2, 0)
    data = pipeline(sampler)
    for epoch in (0, 3, 1):
        sampler.set_epoch(epoch)
        assert sampler.num_samples == 1 + epoch
        assert delivered(data) == list(range(1 + epoch))


class Changing(Contiguous):
    """A partition that gives rank 0 one more sample in every epoch."""

    def partition(
        self, samples: Any, ranks: int, seed: int = 0, epoch: int = 0
    ) -> list[np.ndarray]:
        return [np.arange(1 + epoch), np.arange(1 + epoch, samples)]


def test_the_copy_of_an_iterator_shares_the_lists() -> None:
    sampler = PartitionSampler(Contiguous(), LABELS, 3, 1)
    copied = copy.deepcopy(sampler)
    assert copied.samples is LABELS
    assert copied.order() is sampler.order()
    copied.set_epoch(1)
    assert sampler.epoch == 0


def test_what_cannot_be_meant_is_told() -> None:
    for ranks, rank in ((3, 3), (3, -1), (0, 0)):
        with pytest.raises(UserError, match=f"no rank {rank} of {ranks}; ranks count from 0"):
            PartitionSampler(Contiguous(), 31, ranks, rank)
    sampler = PartitionSampler(Contiguous(), 2, 3, 0)
    for use in (lambda: len(sampler), lambda: pipeline(sampler).create_tuple_iterator()):
        with pytest.raises(UserError, match="3 ranks cannot share 2 samples"):
            use()
    with pytest.raises(UserError, match="received epoch = -1"):
        sampler.set_epoch(-1)


def test_a_rank_without_samples_is_told_before_mindspore_fails() -> None:
    rule = partition_from({"name": "fractions", "fractions": [1, 0]})
    sampler = PartitionSampler(rule, 9, 2, 1)
    assert list(sampler) == []
    assert len(sampler) == 0
    with pytest.raises(UserError, match="rank 1 of 2 has no sample, and a MindSpore pipeline"):
        pipeline(sampler, 9).create_tuple_iterator()


def test_the_example_of_the_page() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    (code,) = [block for block in blocks if "dualml_ms" in block]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 232 of 1437\n1 232 of 1437\n"


# --- MindSpore's DistributedSampler --------------------------------------------------------------


def framework_sampler(n: int, ranks: int, rank: int, shuffle: bool) -> Any:
    return pipeline(ds.DistributedSampler(ranks, rank, shuffle=shuffle), n)


@pytest.mark.parametrize(
    ("n", "ranks"), [(n, ranks) for n in (1, 5, 8, 11, 31) for ranks in (1, 2, 4, 5) if ranks <= n]
)
def test_without_shuffle_the_lists_are_mindspores(n: int, ranks: int) -> None:
    """Without shuffling, the index lists are MindSpore's, also when n does not divide: both fill up
    from the beginning."""
    parts = DistributedSampler(shuffle=False).partition(n, ranks)
    for rank in range(ranks):
        assert delivered(framework_sampler(n, ranks, rank, shuffle=False)) == parts[rank].tolist()


def test_with_shuffle_mindspores_permutation_is_another_one(seeded: Any) -> None:
    """With shuffling, MindSpore's permutation differs: it is drawn from the configuration's seed
    when the sampler is made, restarts with every iterator, and changes only over the epochs of one
    iterator."""
    for unknown in ({"seed": 3}, {"drop_last": True}):
        with pytest.raises(TypeError):
            ds.DistributedSampler(2, 0, **unknown)
    seeded(3)
    data = framework_sampler(31, 2, 0, shuffle=True)
    first = delivered(data)
    assert delivered(data) == first
    seeded(4)
    assert delivered(data) == first
    assert delivered(framework_sampler(31, 2, 0, shuffle=True)) != first
    found = epochs(data, 3)
    assert found[0] == first
    assert len({tuple(order) for order in found}) == 3
    ours = DistributedSampler()
    near = (
        ours.partition(31, 2, seed, epoch)[0].tolist() for seed in range(6) for epoch in range(3)
    )
    assert first not in near
