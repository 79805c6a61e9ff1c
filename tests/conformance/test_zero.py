"""However a model is sharded over the ranks, it trains like the unsharded one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import split, zero
from conformance.backends import create, on_ranks, rank_backends, tolerance
from conformance.group_results import GroupResults, make_group_results
from conformance.test_split import assert_same
from conformance.test_split_precision import assert_alike, assert_near

from dualml.algorithms.optim import RULES
from dualml.backend.reference.communicator import run_threads
from dualml.backend.reference.shard import NumpyOptimizerShard
from dualml.parallel.zero.collectives import ShardCollectives
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.units import Unit

# The first test of a group waits for all that its ranks have to find out.
pytestmark = pytest.mark.timeout(900)

#: Batch sizes: 8 divides by 2 and 4, 7 does not, and of 1 most ranks have no sample.
SIZES = [8, 7, 1]
#: Bucket bytes that combine some layers of these models, but not all.
SOME = 1400
VARIANTS = [name for rule in RULES.values() for name in rule.variants if rule.name != "gd"]


def case(
    ranks: int,
    stage: int,
    model: str = "lenet",
    optimizer: str = "adam",
    *,
    sizes: list[int] = SIZES,
    loss: str = "cross_entropy",
    chunk: int = zero.CHUNK,
    **sharding: Any,
) -> dict[str, Any]:
    shared = {"stage": stage, "bucket_bytes": SOME, **sharding}
    return {
        "ranks": ranks,
        "model": model,
        "optimizer": optimizer,
        "sizes": sizes,
        "loss": loss,
        "chunk": chunk,
        "zero": shared,
    }


STAGES = (1, 2, 3)
CASES = {
    **{f"stage {s} of {n}": case(n, s) for s in STAGES for n in (2, 3, 4)},
    **{f"stage {s} {v}": case(2, s, "deep", v) for s in STAGES for v in VARIANTS},
    **{f"stage {s} chunks": case(3, s, "deep", chunk=2) for s in STAGES},
    **{f"stage {s} all_reduce": case(3, s, reduce="all_reduce") for s in STAGES},
    **{f"stage {s} native": case(3, s, native=True) for s in STAGES},
    **{
        f"stage {s} native all_reduce": case(2, s, native=True, reduce="all_reduce") for s in STAGES
    },
    **{f"stage {s} layers": case(2, s, "vit", bucket_bytes=0) for s in STAGES},
    **{f"stage {s} whole": case(2, s, "vit", "sgd", bucket_bytes=2**20) for s in STAGES},
    **{f"stage {s} text": case(2, s, "rnn", sizes=[6, 5]) for s in STAGES},
    **{f"stage {s} masks": case(3, s, "dropout", "sgd", sizes=[6, 5], chunk=2) for s in STAGES},
    **{
        f"stage {s} meanwhile of {n}": case(n, s, "deep", overlap=True)
        for s in (2, 3)
        for n in (2, 3, 4)
    },
    **{f"stage {s} meanwhile chunks": case(2, s, chunk=2, overlap=True) for s in (2, 3)},
    **{f"stage {s} meanwhile native": case(3, s, "vit", native=True, overlap=True) for s in (2, 3)},
    "stage 1 gpt": case(2, 1, "gpt", "sgd", sizes=[6, 5], bucket_bytes=0),
    **{
        f"stage {s} padding": case(2, s, "text", "sgd", sizes=[6, 5], bucket_bytes=None)
        for s in STAGES
    },
    **{
        f"stage {s} gpt whole": case(2, s, "gpt", "sgd", sizes=[6, 5], bucket_bytes=2**20)
        for s in (2, 3)
    },
    **{f"stage {s} llama": case(3, s, "llama", sizes=[6, 5]) for s in STAGES},
    **{
        f"stage {s} again": {**case(2, s, "llama", sizes=[6, 5]), "recompute": "full"}
        for s in STAGES
    },
    "stage 2 mse": case(4, 2, "deep", loss="mse"),
    "stage 3 rates": {**case(2, 3, "deep"), "rates": {"kind": "cosine", "warmup": 2}},
}
LOWER = {
    f"stage {s} {kind}": {**case(2 + s % 2, s, model, sizes=[8, 7]), "precision": precision}
    for s in STAGES
    for kind, precision, model in [("bf16", ("bf16",), "vit"), ("fp16", ("fp16", 256.0), "lenet")]
}
#: Whole weights and gradients in low precision.
LOWER_HELD = {
    f"stage {s} held {kind}": {
        **case(2 + s % 2, s, model, sizes=[8, 7], lower=True),
        "precision": precision,
        **more,
    }
    for s in STAGES
    for kind, precision, model, more in [
        ("bf16", ("bf16",), "vit", {}),
        ("fp16", ("fp16", 256.0), "lenet", {}),
        ("llama", ("fp16",), "llama", {"chunk": 2, "recompute": "full"}),
    ]
}
#: Cases without the one number by which ranks agree whether their gradients are finite.
UNSCALED = {title: c for title, c in LOWER_HELD.items() if len(c["precision"]) == 1}
#: Inputs a hundred times as large: the first gradients of the scaled loss overflow float16.
OVERFLOWING = {
    f"stage {s} overflow": {
        **case(2, s, sizes=[8] * 9),
        "precision": ("fp16", "dynamic"),
        "enlarged": 100.0,
        "rates": {"kind": "cosine", "warmup": 3},
    }
    for s in STAGES
}
KNOWN = {**CASES, **LOWER, **LOWER_HELD, **OVERFLOWING}
#: Cases for a framework that compiles every unit of every case and every chunk size.
FEW = {
    **{f"stage {s} of 2": [8] for s in STAGES},
    "stage 1 of 3": [12],
    "stage 3 of 3": [12],
    "stage 2 of 4": [16],
    "stage 1 sgd-momentum": [4, 4],
    "stage 2 adamw": [4, 4],
    "stage 3 sgd-momentum": [4, 4],
    "stage 2 chunks": [12, 6],
    "stage 3 layers": [4, 1],
    "stage 3 masks": [6],
    "stage 2 bf16": [6],
    "stage 3 meanwhile of 2": [4],
    "stage 3 padding": [4],
    "stage 1 gpt": [4],
    "stage 3 llama": [6],
    "stage 2 again": [4],
    "stage 1 all_reduce": [6],
    "stage 2 native": [6],
    "stage 3 native": [6],
    "stage 3 rates": [4, 4],
    "stage 1 held fp16": [6],
    "stage 2 held llama": [4],
    "stage 2 overflow": [8] * 9,
}
#: Cases of these that combine what others have one by one: they run with ``--slow``.
LATER = {
    "stage 1 sgd-momentum",  # one slot, as RMSprop's in test_optim.py; Adam's two are run
    "stage 1 all_reduce",  # the reduction knows no framework
    "stage 3 rates",  # test_optim.py follows schedules
    "stage 2 held llama",  # float16 weights as in stage 1
    "stage 3 masks",  # dropout as in stage 1 of GPT
}
SPLITTING = rank_backends()


def cases_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the cases that a backend runs."""
    return split.cases_of(name, KNOWN, FEW, LATER)


def all_cases(among: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, title) for name in SPLITTING for title in cases_of(name) if title in among]


@pytest.fixture(scope="module")
def group_results(tmp_path_factory: pytest.TempPathFactory) -> GroupResults:
    return make_group_results(tmp_path_factory, cases_of, "conformance.zero:train", timeout=180)


def without_trace_loss(arrays: split.Arrays) -> split.Arrays:
    """Drop the loss of the trace, which ranks that share a batch do not report."""
    return {**arrays, "losses": arrays["losses"][1:]}


@pytest.mark.parametrize(("name", "title"), all_cases(CASES))
def test_n_ranks_with_a_part_each_are_one(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Losses, gradients, activations, weights and optimizer state are right on every rank."""
    ranks = group_results(name, title)
    whole = without_trace_loss(zero.expected(cases_of(name)[title]))
    for rank in ranks:
        assert_same(without_trace_loss(rank["arrays"]), whole, tolerance(create(name)))
    assert_alike([rank["arrays"] for rank in ranks])


@pytest.mark.parametrize(("name", "title"), all_cases({**LOWER, **LOWER_HELD}))
def test_so_they_are_in_a_lower_precision(
    group_results: GroupResults, name: str, title: str
) -> None:
    asked, ranks = cases_of(name)[title], group_results(name, title)
    assert_near(
        without_trace_loss(ranks[0]["arrays"]), without_trace_loss(zero.expected(asked)), asked
    )
    assert_alike([rank["arrays"] for rank in ranks])


@pytest.mark.parametrize(("name", "title"), all_cases(OVERFLOWING))
def test_all_ranks_skip_the_same_updates(
    group_results: GroupResults, name: str, title: str
) -> None:
    ranks = [rank["arrays"] for rank in group_results(name, title)]
    assert_alike(ranks)
    skipped = float(ranks[0]["state loss_scale skipped"])
    assert 1 <= skipped < len(OVERFLOWING[title]["sizes"]) - 1
    start = zero.recipe_of(OVERFLOWING[title]).weights
    assert any(not np.array_equal(ranks[0][f"weight {n}"], w) for n, w in start.items())


@pytest.mark.parametrize(("name", "title"), all_cases(KNOWN))
def test_what_is_held_is_the_closed_form(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Memory equals the closed form to the byte on every rank, with padding."""
    asked = cases_of(name)[title]
    width, wide = zero.widths(create(name), asked)
    form, _ = zero.forms(asked, asked["ranks"])
    for rank in group_results(name, title):
        memory = {part: n for part, n in rank["memory"].items() if part != "activations"}
        assert memory == {
            "weights": width * form.weights,
            "gradients": width * form.gradients,
            "state": wide * form.state,
            "buckets": width * form.gathered,
        }
        kept = rank["memory"]["activations"]
        assert kept is None or kept > 0


@pytest.mark.parametrize(("name", "title"), all_cases({**CASES, **UNSCALED}))
def test_what_is_sent_is_the_closed_form(
    group_results: GroupResults, name: str, title: str
) -> None:
    asked = cases_of(name)[title]
    if asked["zero"].get("native"):
        assert name == "numpy" or any(rank["calls"] for rank in group_results(name, title))
        return
    for rank in group_results(name, title):
        assert rank["moved"] == [zero.forms(asked, asked["ranks"])[1]] * 2
        assert rank["calls"] == 0


@pytest.mark.parametrize("name", SPLITTING)
@pytest.mark.parametrize(("stage", "then"), [(1, 3), (3, 2)])
def test_weights_and_state_go_on_in_another_layout(name: str, stage: int, then: int) -> None:
    asked = case(2, stage, "deep", sizes=[8] * 4)
    other = {"stage": then, "bucket_bytes": 0}
    argument = {"case": asked, "then": other}
    whole = zero.expected(asked)
    for rank in on_ranks(name, 2, "conformance.zero:resumed", argument, timeout=120):
        for key, weights in rank.items():
            want = whole[f"weight {key}"].ravel()
            assert np.abs(np.array(weights) - want).max() <= tolerance(create(name)) * max(
                1.0, np.abs(want).max()
            )


# --- planted faults -------------------------------------------------------------------------------


def unsummed(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: gradients are not summed over the ranks."""
    patch.setattr(ShardCollectives, "reduce_scatter", lambda self, vector: self.local_part(vector))


def skip_all_gather(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: updated weights are not all-gathered."""
    patch.setattr(ShardedModel, "all_gather_params", lambda self: None)


def stale(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: weights are not gathered before use."""
    patch.setattr(ShardCollectives, "all_gather", lambda self, vector: None)


def uncleared(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: gradient buffers are not cleared."""
    from dualml.backend.reference.split import NumpyStage

    patch.setattr(NumpyStage, "zero_vector", lambda self, vector: None)


def shifted(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: arrays are gathered in another order than they are stored."""
    right = Unit.unflatten
    patch.setattr(Unit, "unflatten", lambda self, vector: right(self, np.roll(vector, 1)))


def forget_state(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: an optimizer that forgets its state."""
    right = NumpyOptimizerShard.update

    def planted(self: NumpyOptimizerShard, *words: Any) -> None:
        self._state = self.recipe.rule.init(self.weights)
        right(self, *words)

    patch.setattr(NumpyOptimizerShard, "update", planted)


@pytest.mark.parametrize(
    ("title", "plant"),
    [
        ("stage 1 of 2", unsummed),
        ("stage 1 of 2", skip_all_gather),
        ("stage 3 of 2", stale),
        ("stage 3 whole", skip_all_gather),  # weights of before the update, which are still there
        ("stage 2 chunks", uncleared),
        ("stage 1 of 2", uncleared),
        ("stage 2 of 3", shifted),
        ("stage 3 of 3", forget_state),
    ],
)
def test_planted_faults_are_seen(
    title: str, plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    asked = CASES[title]
    argument = {"cases": [asked], "folder": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        run_threads(asked["ranks"], lambda comm: zero.train(comm, argument), 10)
    mine = dict(np.load(tmp_path / "case0.rank0.npz"))
    with pytest.raises(AssertionError):
        assert_same(without_trace_loss(mine), without_trace_loss(zero.expected(asked)), 1e-3)
