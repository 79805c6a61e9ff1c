"""However a model is split over its ranks, it computes what the unsplit model computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import split
from conformance.backends import create, rank_backends, tolerance
from conformance.group_results import GroupResults, make_group_results

from dualml.backend.reference.communicator import run_threads
from dualml.experiment.split import Split
from dualml.parallel.split.executor import Executor

# The first test of a group waits for all that its ranks have to find out.
pytestmark = pytest.mark.timeout(900)

#: Batch sizes: 8 divides into 2 and 4 micro-batches, 7 does not, and of 1 most have no sample.
SIZES = [8, 7, 1]


def case(
    ranks: int,
    model: str,
    optimizer: str = "sgd",
    *,
    sizes: list[int] = SIZES,
    loss: str = "cross_entropy",
    **settings: Any,
) -> dict[str, Any]:
    given = {"ranks": ranks, "model": model, "optimizer": optimizer, "sizes": sizes, "loss": loss}
    return {**given, "split": settings}


#: Messages arrive in another order than they are needed: every rank orders its micro-batches
#: differently.
CROSSED = (
    "0F0 0F1 0F2 0F3  .   .   .   .   .   .   .   .  0B1 0B3 0B0 0B2",
    " .   .   .   .  1F3 1F1 1F2 1F0 1B0 1B2 1B3 1B1  .   .   .   . ",
)
DEVICES: dict[str, Any] = {"engine": "devices", "devices": ["cpu:0", "cpu:1"]}
RNN = {"embedding": "row", "decoder": "column"}
CASES = {
    **{
        f"{name} m={m}": case(2, "deep", schedule=name, micro_batches=m)
        for name in ("naive", "gpipe", "1f1b", "eager-1f1b")
        for m in (1, 4)
    },
    "interleaved": case(2, "deep", "adam", stages=4, schedule="interleaved", micro_batches=4),
    "crossed": case(2, "deep", grid=[row.split() for row in CROSSED], micro_batches=4),
    "there and back": case(2, "deep", "adam", place=[0, 1, 0], micro_batches=3),
    "to oneself": case(2, "deep", place=[0, 0, 1, 1], micro_batches=2, schedule="gpipe"),
    "data": case(2, "deep", "adam", data=2),
    "data micro": case(2, "lenet", data=2, micro_batches=3),
    "lenet by layer": case(2, "lenet", cut=["flatten"], micro_batches=3),
    "vit by layer": case(2, "vit", "adam", cut=["branch2"], micro_batches=4),
    "mlp inside": case(2, "deep", tensor=2),
    "mlp inside mse": case(2, "deep", "adam", tensor=2, loss="mse"),
    "one layer inside": case(2, "deep", tensor=2, layers={"fc2": "column"}, micro_batches=3),
    "last layer inside": case(2, "deep", "adam", tensor=2, layers={"out": "column"}),
    "lenet inside": case(2, "lenet", "adam", tensor=2),
    "lenet inside micro": case(2, "lenet", tensor=2, micro_batches=3),
    "channels alone": case(2, "lenet", tensor=2, layers={"conv2": "column", "fc1": "row"}),
    "vit inside": case(2, "vit", "adam", tensor=2),
    "vit inside micro": case(2, "vit", tensor=2, micro_batches=2),
    "heads alone": case(2, "vit", tensor=2, layers={"qkv": "column", "proj": "whole"}),
    "rnn by row": case(2, "rnn", "adam", tensor=2, layers=RNN, sizes=[6, 5]),
    "rnn by column": case(2, "rnn", tensor=2, layers={"embedding": "column"}, sizes=[6, 5]),
    "rnn by layer": case(2, "rnn", cut=["lstm"], micro_batches=2, sizes=[6, 5]),
    "gru by layer": case(2, "two gru", "adam", cut=["gru2"], micro_batches=2, sizes=[6, 5]),
    "tied rnn there and back": case(2, "tied rnn", "adam", cut=["rnn", "decoder"], place=[0, 1, 0],
                                    micro_batches=2, sizes=[6, 5]),
    "tied rnn apart": case(2, "tied rnn", cut=["rnn2"], micro_batches=2, sizes=[6, 5]),
    "tied rnn trainers": case(3, "tied rnn", cut=["rnn", "decoder"], place=[0, 1, 0], trainers=2,
                              micro_batches=2, sizes=[6, 5]),
    "stateful there and back": case(2, "stateful", "adam", cut=["lstm", "decoder"],
                                    place=[0, 1, 0], micro_batches=2, sizes=[4, 4, 4]),
    "stateful by layer": case(2, "stateful", cut=["lstm2"], micro_batches=2, sizes=[4, 4, 4]),
    "stateful trainers": case(3, "stateful", cut=["lstm", "decoder"], place=[0, 1, 0], trainers=2,
                              micro_batches=2, sizes=[4, 4, 4]),
    "stateful data": case(2, "stateful", "adam", data=2, sizes=[4, 4, 4]),
    "masks by layer": case(2, "dropout", cut=["lstm"], micro_batches=3, sizes=[6, 5]),
    "masks inside": case(2, "dropout", tensor=2, sizes=[6, 5], micro_batches=2,
                         layers={"embedding": "column", "decoder": "column"}),
    "masks by data": case(2, "dropout", data=2, sizes=[6, 5]),
    "three stages": case(3, "deep", "adam", micro_batches=3),
    "three inside": case(3, "deep", tensor=3, layers={"fc2": "column", "fc3": "row"}),
    "trainers": case(3, "deep", trainers=2, place=[0, 1, 0], micro_batches=2),
    "trainers micro": case(3, "deep", "adam", trainers=2, place=[0, 1, 0], micro_batches=4,
                           schedule="gpipe"),
    "trainers last": case(3, "lenet", trainers=2, place=[0, 1], micro_batches=2, schedule="naive"),
    "trainers of text": case(3, "rnn", trainers=2, place=[0, 1, 0], micro_batches=2, sizes=[6, 5]),
    "trainers with masks": case(3, "dropout", trainers=2, cut=["dropout1", "dropout2"],
                                place=[0, 1, 0], micro_batches=2, sizes=[6, 1]),
    "four stages": case(4, "deep", micro_batches=4),
    "four stages adam": case(4, "vit", "adam", micro_batches=2, schedule="gpipe"),
    "four, twice": case(4, "deep", stages=8, micro_batches=4, schedule="interleaved"),
    "there and back of four": case(4, "deep", place=[0, 1, 2, 3, 3, 2, 1, 0], micro_batches=3),
    "data pipeline": case(4, "deep", "adam", data=2, micro_batches=2),
    "data pipeline interleaved": case(4, "deep", data=2, stages=4, schedule="interleaved",
                                      micro_batches=2),
    "tensor pipeline": case(4, "vit", tensor=2, cut=["branch2"], micro_batches=3),
    "tensor pipeline lenet": case(4, "lenet", "adam", tensor=2, cut=["flatten"], micro_batches=2),
    "tensor there and back": case(4, "deep", tensor=2, place=[0, 1, 0], micro_batches=2,
                                  cut=["fc3", "fc4"]),
    "data tensor": case(4, "lenet", data=2, tensor=2),
    "data tensor masks": case(4, "dropout", data=2, tensor=2, layers=RNN, sizes=[6, 5]),
    "gpt by layer": case(2, "gpt", "adam", cut=["mlp_branch1"], micro_batches=3, sizes=[6, 5]),
    "gpt there and back": case(2, "gpt", place=[0, 1, 0], cut=["attention_branch1", "norm"],
                               micro_batches=2, sizes=[6, 5]),
    "gpt inside": case(2, "gpt", "adam", tensor=2, sizes=[6, 5]),
    "gpt by data": case(2, "gpt", "adam", data=2, sizes=[6, 5]),
    "gpt three stages": case(3, "gpt", micro_batches=2, sizes=[6, 5],
                             cut=["attention_branch1", "mlp_branch1"]),
    "llama by layer": case(2, "llama", "adam", cut=["mlp_branch1"], micro_batches=3, sizes=[6, 5]),
    "llama inside": case(2, "llama", "adam", tensor=2, sizes=[6, 5]),
    "llama head inside": case(2, "llama", tensor=2, sizes=[6, 5],
                              layers={"embedding": "row", "up1": "column", "head": "column"}),
    "gpt data pipeline": case(4, "gpt", "adam", data=2, cut=["norm"], micro_batches=2,
                              sizes=[6, 1]),
    "gpt tensor pipeline": case(4, "gpt", "adam", tensor=2, cut=["mlp_branch1"], sizes=[6, 5]),
    "llama tensor pipeline": case(4, "llama", tensor=2, cut=["norm"], sizes=[6, 5],
                                  micro_batches=2),
    "four heads": case(4, "vit", "adam", tensor=4, layers={"qkv": "column", "proj": "row"}),
    "sequence": case(2, "gpt", "adam", tensor=2, sequence=True, sizes=[6, 5]),
    "sequence llama": case(2, "llama", "adam", tensor=2, sequence=True, sizes=[6, 5],
                           micro_batches=2),
    "sequence regathered": case(2, "longer gpt", "adam", tensor=2, sequence=True, regather=True,
                                sizes=[6, 5], micro_batches=2),
    "sequence regathered again": {**case(2, "longer gpt", tensor=2, sequence=True, regather=True,
                                         sizes=[6, 5]), "recompute": "full"},
    "sequence of a vocabulary": case(2, "llama", tensor=2, sequence=True, sizes=[6, 5],
                                     layers={"embedding": "row", "up1": "column", "down1": "row",
                                             "qkv1": "column", "out1": "row"}),
    "sequence of three": case(3, "three heads", tensor=3, sequence=True, sizes=[6],
                              layers={"qkv1": "column", "out1": "row"}),
    "sequence pipeline": case(4, "gpt", "adam", tensor=2, sequence=True, cut=["mlp_branch1"],
                              sizes=[6, 5], micro_batches=2),
    "sequence bare stage": case(6, "gpt", tensor=2, sequence=True, sizes=[6],
                                cut=["position", "attention_branch1"]),
    "context": case(2, "longer gpt", "adam", context=2, sizes=[6, 5]),
    "context llama": case(2, "longer llama", "adam", context=2, sizes=[6, 5], micro_batches=2),
    "context of three": case(3, "longer gpt", context=3, sizes=[6, 5]),
    "context of four": case(4, "longer llama", "adam", context=4, sizes=[6]),
    "context pipeline": case(4, "longer llama", "adam", context=2, cut=["mlp_branch1"],
                             sizes=[6, 5], micro_batches=2),
    "context bare stage": case(6, "longer gpt", context=2, sizes=[6],
                               cut=["position", "attention_branch1"]),
    "devices": case(1, "deep", "adam", place=[0, 1, 0], micro_batches=3, **DEVICES),
    "devices gpipe": case(1, "lenet", cut=["flatten"], micro_batches=2, schedule="gpipe",
                          **DEVICES),
    "devices of text": case(1, "dropout", "adam", cut=["lstm", "decoder"], place=[0, 1, 0],
                            sizes=[6, 5], **DEVICES),
    "devices tied": case(1, "gpt", cut=["attention_branch1", "norm"], place=[0, 1, 0],
                         sizes=[6, 5], **DEVICES),
    "devices data": case(2, "deep", "adam", data=2, place=[0, 1, 0], micro_batches=3, **DEVICES),
    "devices data masks": case(2, "dropout", data=2, cut=["lstm"], sizes=[6, 5], **DEVICES),
    "zero context data": {**case(4, "longer gpt", "adam", context=2, data=2, sizes=[6, 5]),
                          "zero": {}},
    "zero data": {**case(2, "deep", "adam", data=2), "zero": {}},
    "zero trainers": {**case(3, "deep", "adam", trainers=2, place=[0, 1, 0], micro_batches=2),
                      "zero": {"native": True}},
    "zero data pipeline": {**case(4, "deep", "adam", data=2, micro_batches=2), "zero": {}},
    "zero tied pipeline": {**case(4, "gpt", data=2, cut=["mlp_branch1"],
                                  micro_batches=2, sizes=[6, 5]), "zero": {}},
    "zero data tensor": {**case(4, "lenet", "adam", data=2, tensor=2),
                         "zero": {"reduce": "all_reduce"}},
    "zero replicas": {**case(3, "lenet", "adam", data=3), "zero": {}},
}  # fmt: skip
#: Cases for a framework that compiles every stage of every case and every micro-batch size: a few
#: that cover all features, with these batches.
FEW = {
    "crossed": [4, 4],
    "there and back": [5, 5],
    "lenet inside": [4, 4],
    "masks inside": [2, 2],
    "trainers": [4, 4],
    "tensor pipeline": [3, 3],
    "data": [4, 1],
    "gpt there and back": [2, 2],
    "tied rnn there and back": [4, 4],
    "stateful there and back": [4, 4],
    "stateful by layer": [4, 4],
    "llama inside": [4, 4],
    "sequence regathered": [4, 4],
    "context llama": [4, 4],
    "devices of text": [4, 4],
    "devices data": [4, 1],
    "zero data pipeline": [4, 4],
    "zero tied pipeline": [4, 4],
    "zero replicas": [6, 6],
}
#: Cases of these that combine what others have one by one: they run with ``--slow``.
LATER = {
    "tied rnn there and back",  # tying as in GPT, layers as in the stateful one
    "stateful by layer",  # the state as there and back
    "gpt there and back",  # masks as in devices of text, tying as in the tied pipeline
    "zero replicas",  # shards as in the tied pipeline
    "devices data",  # replicas as in zero, devices as of text
}


def cases_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the cases that a backend runs."""
    return split.cases_of(name, CASES, FEW, LATER)


@pytest.fixture(scope="module")
def group_results(tmp_path_factory: pytest.TempPathFactory) -> GroupResults:
    return make_group_results(tmp_path_factory, cases_of, "conformance.split:train", timeout=60)


EVERY = [(name, title) for name in rank_backends() for title in cases_of(name)]


def assert_same(mine: split.Arrays, whole: split.Arrays, tolerance: float) -> None:
    """Assert that every array is within ``tolerance`` of its largest entry; for nearly zero
    gradients and state, of the largest of their kind."""
    assert mine.keys() == whole.keys()
    np.testing.assert_array_equal(mine["predicted"], whole["predicted"])
    largest: dict[str, float] = {}
    for name, want in whole.items():
        kind = name.rpartition(" ")[0]
        largest[kind] = max(largest.get(kind, 0.0), float(np.abs(want).max()))
    for name, want in whole.items():
        assert mine[name].shape == want.shape, name
        scale = max(np.abs(want).max(), 0.1 * largest[name.rpartition(" ")[0]])
        distance = np.abs(mine[name] - want).max() / scale
        assert distance <= tolerance, f"{name}: {distance:.2e} > {tolerance:.0e}"


@pytest.mark.parametrize(("name", "title"), EVERY)
def test_a_split_model_is_the_whole_one(group_results: GroupResults, name: str, title: str) -> None:
    """Losses, gradients, activations, weights and optimizer state are right on every rank."""
    ranks = group_results(name, title)
    whole = split.expected(cases_of(name)[title])
    for rank in ranks:
        assert_same(rank["arrays"], whole, tolerance(create(name)))
        assert 0 < rank["live"] <= rank["bound"]
    for rank in ranks[1:]:
        for key, value in ranks[0]["arrays"].items():
            np.testing.assert_array_equal(rank["arrays"][key], value, err_msg=key)


@pytest.mark.parametrize(("name", "title"), [e for e in EVERY if e[1].startswith("zero")])
def test_ranks_with_the_same_parameters_share_out_their_state(
    group_results: GroupResults, name: str, title: str
) -> None:
    """Ranks with the same parameters shard their state: 2Ψ/n for Adam, Ψ/n for momentum, padded. A
    rank that is the only one with its parameters holds all of their state."""
    width = np.dtype(create(name).dtype).itemsize
    asked = cases_of(name)[title]
    groups = Split(**asked["split"]).plan(split.spec_of(asked), asked["ranks"]).same_parameters()
    sizes = {rank: len(group) for group in groups for rank in group}
    for rank, told in enumerate(group_results(name, title)):
        n = sizes.get(rank, 1)
        slots = 2 if CASES[title]["optimizer"] == "adam" else 1  # momentum
        assert told["state"] == slots * width * -(-told["own"] // n)
    assert sizes


@pytest.mark.parametrize("title", ["crossed", "vit inside", "trainers", "masks inside"])
def test_the_helper_can_fail(title: str) -> None:
    """A small change in one entry of any array is noticed, and so is another order of the
    batches."""
    whole = split.expected(CASES[title])
    assert_same(whole, whole, 0.0)
    for name, value in whole.items():
        if name == "predicted":
            continue
        wrong = value.copy()
        wrong.flat[-1] += 1e-4 * np.abs(value).max() + 1e-6
        with pytest.raises(AssertionError):
            assert_same({**whole, name: wrong}, whole, 2e-6)
    other = split.expected({**CASES[title], "sizes": CASES[title]["sizes"][::-1]})
    with pytest.raises(AssertionError):
        assert_same(other, whole, 2e-6)


def lost_sum(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: sums over a group are skipped."""
    patch.setattr(Executor, "all_reduce_sum", lambda self, group, x: x)


def other_masks(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: dropout masks are drawn from another seed."""
    patch.setattr(split, "SEED", split.SEED + 1)


def equal_shares(patch: pytest.MonkeyPatch) -> None:
    """A planted fault: micro-batches of unequal length get equal weight."""
    begin = Executor.begin

    def planted(self: Executor, *words: Any) -> None:
        begin(self, *words)
        self.batch_shares = [1 / len(self.batch_shares)] * len(self.batch_shares)

    patch.setattr(Executor, "begin", planted)


@pytest.mark.parametrize(
    ("title", "plant"),
    [
        ("mlp inside", lost_sum),
        ("vit inside", lost_sum),
        ("data", lost_sum),
        ("trainers", lost_sum),
        ("masks by layer", other_masks),
        ("1f1b m=4", equal_shares),
    ],
)
def test_planted_faults_are_seen(
    title: str, plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    whole = split.expected(CASES[title])
    argument = {"cases": [CASES[title]], "folder": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        run_threads(CASES[title]["ranks"], lambda comm: split.train(comm, argument), 10)
    with pytest.raises(AssertionError):
        assert_same(dict(np.load(tmp_path / "case0.rank0.npz")), whole, 1e-3)
