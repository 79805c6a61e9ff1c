"""The bytes that cross between ranks, by the plan and as measured, and the plan on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import split

from dualml.algorithms.model import model
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.plan import Plan
from dualml.experiment.schema import Experiment
from dualml.experiment.split import Split
from dualml.experiment.store.plan import restore_plan, save_plan
from dualml.experiment.store.times import TIMELINE
from dualml.parallel.split import traffic
from dualml.parallel.split.plan import SplitPlan, split_plan
from dualml.parallel.split.timeline import KINDS
from dualml.parallel.split.timeline_stats import summary

DIGITS = load_data("digits", explicit=True)
WHOLE = 51_902  # parameters of LeNet


def links(plan: SplitPlan, batch: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return (source, target) → messages and bytes."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for link in traffic.links(plan, batch):
        messages, nbytes = found.get((link.source, link.target), (0, 0))
        found[link.source, link.target] = messages + link.messages, nbytes + link.nbytes
    return found


def collectives(plan: SplitPlan, batch: int) -> dict[tuple[tuple[int, ...], str], tuple[int, int]]:
    return {(m.ranks, m.kind): (m.calls, m.nbytes) for m in traffic.collectives(plan, batch)}


@pytest.mark.parametrize(("options", "batch", "between", "added"), [
    # Flatten: 400 numbers of a sample, of 4 bytes; micro-batches of 3, 3, 2 and 2 samples.
    ({"cut": ["fc1"], "micro_batches": 4}, 10,
     {(0, 1): (4, 16000), (1, 0): (4, 16000)}, {}),
    ({"cut": ["fc1"], "micro_batches": 4}, 3, {(0, 1): (3, 4800), (1, 0): (3, 4800)}, {}),
    # There and back: 6·14·14 after the pooling, 120 after relu3.
    ({"cut": ["conv2", "fc2"], "place": [0, 1, 0], "schedule": "naive"}, 10,
     {(0, 1): (2, 47040 + 4800), (1, 0): (2, 47040 + 4800)}, {}),
    # After conv2 16·10·10, after fc2 10; the gradient in front of fc1.
    ({"tensor": 2, "micro_batches": 3}, 10, {},
     {((0, 1), "all_reduce forward"): (6, 64000 + 400),
      ((0, 1), "all_reduce backward"): (3, 16000)}),
    ({"data": 2, "micro_batches": 2}, 10, {},
     {((0, 1), "all_reduce gradients"): (1, 4 * WHOLE)}),
    # fc1 alone: 60 of its 120 outputs of each rank, and the gradient of its input.
    ({"tensor": 2, "layers": {"fc1": "column"}}, 10, {},
     {((0, 1), "all_gather forward"): (1, 2400), ((0, 1), "all_reduce backward"): (1, 16000)}),
])  # fmt: skip
def test_bytes_by_hand_of_two_ranks(
    options: dict[str, Any], batch: int, between: dict[Any, Any], added: dict[Any, Any]
) -> None:
    plan = split_plan(model("lenet"), 2, **options)
    assert links(plan, batch) == between
    assert collectives(plan, batch) == added


def test_bytes_by_hand_of_more_ranks() -> None:
    both = split_plan(model("lenet"), 4, data=2, cut=["fc1"], micro_batches=2)
    # Ranks 0 and 1 have 5 samples of 9, in micro-batches of 3 and 2; ranks 2 and 3 have 4.
    assert links(both, 9) == {
        (0, 1): (2, 8000),
        (1, 0): (2, 8000),
        (2, 3): (2, 6400),
        (3, 2): (2, 6400),
    }
    assert collectives(both, 9) == {
        ((0, 2), "all_reduce gradients"): (1, 4 * (156 + 2416)),
        ((1, 3), "all_reduce gradients"): (1, 4 * (48120 + 1210)),
    }
    trainers = split_plan(
        model("lenet"), 3, trainers=2, cut=["conv2", "fc2"], place=[0, 1, 0], micro_batches=2
    )
    assert links(trainers, 5) == {
        (0, 1): (2, 3 * 4 * (1176 + 120)),
        (1, 0): (2, 3 * 4 * (1176 + 120)),
        (0, 2): (2, 2 * 4 * (1176 + 120)),
        (2, 0): (2, 2 * 4 * (1176 + 120)),
    }
    assert collectives(trainers, 5) == {
        ((1, 2), "all_reduce gradients"): (1, 4 * (2416 + 48120)),
    }


def test_bytes_by_hand_in_a_lower_precision() -> None:
    """Low-precision values take two bytes; sums are float32 in any case."""
    plan = split_plan(model("lenet"), 2, cut=["fc1"], micro_batches=4)  # after Flatten
    assert [link.nbytes for link in traffic.links(plan, 10, lower=True)] == [8000, 8000]
    plan = split_plan(model("vit"), 2, cut=["branch2"])  # after a merge with the positions
    assert traffic.links(plan, 10, lower=True) == traffic.links(plan, 10)
    inside = split_plan(model("lenet"), 2, tensor=2, layers={"fc1": "column"})
    found = {c.kind: c.nbytes for c in traffic.collectives(inside, 10, lower=True)}
    assert found == {"all_gather forward": 1200, "all_reduce backward": 16000}
    calls = split_plan(model("lenet"), 3, cut=["fc1"], engine="rpc")
    assert [(x.what, x.nbytes) for x in traffic.links(calls, 10, lower=True)] == [
        ("gradients", 8000),
        ("samples", 31360),
        ("activations", 8000),
        ("gradients", 200),
        ("activations", 8000),
        ("activations", 200),
        ("gradients", 8000),
    ]


# --- what really crosses ------------------------------------------------------------------------

REAL: list[tuple[int, str, int, dict[str, Any]]] = [
    (2, "deep", 7, {"micro_batches": 4}),
    (2, "lenet", 8, {"tensor": 2, "micro_batches": 3}),
    (2, "vit", 5, {"tensor": 2, "layers": {"qkv": "column", "up": "column", "down": "row"}}),
    (3, "deep", 7, {"trainers": 2, "place": [0, 1, 0], "micro_batches": 4, "schedule": "gpipe"}),
    (4, "vit", 7, {"tensor": 2, "cut": ["branch2"], "micro_batches": 2}),
    (4, "lenet", 7, {"data": 2, "cut": ["flatten"], "micro_batches": 2, "schedule": "naive"}),
    (4, "deep", 8, {"stages": 8, "schedule": "interleaved", "micro_batches": 4}),
    (2, "gpt", 7, {"tensor": 2, "sequence": True}),
    (2, "longer gpt", 7, {"tensor": 2, "sequence": True, "regather": True, "micro_batches": 2}),
    (
        4,
        "longer llama",
        7,
        {"tensor": 2, "sequence": True, "cut": ["mlp_branch1"], "micro_batches": 2},
    ),
    (2, "longer llama", 7, {"context": 2, "micro_batches": 2}),
    (4, "longer llama", 7, {"context": 2, "cut": ["mlp_branch1"]}),
    (3, "gpt", 7, {"cut": ["attention_branch1", "mlp_branch1"], "micro_batches": 2}),
]


@pytest.mark.parametrize(("ranks", "name", "batch", "settings"), REAL)
def test_bytes_that_crossed_are_those_of_the_plan(
    ranks: int, name: str, batch: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The reference's numbers are twice as wide as those of the plan."""
    case = {"model": name, "optimizer": "sgd", "loss": "cross_entropy", "sizes": [batch, batch]}
    plan = Split(**settings).plan(split.SPECS[name], ranks)
    traffic: list[tuple[int, int]] = [(0, 0)] * ranks

    def work(comm: Any) -> None:
        training = split.make_training(comm, NumpyBackend(), case, plan)
        same = training.executor.dp_group
        for step, samples in enumerate(split.batches(case), start=1):
            comm.barrier()
            before = comm.traffic.sent, comm.traffic.bytes_sent
            training.step(samples, step)
            traffic[comm.rank] = (
                comm.traffic.sent - before[0],
                comm.traffic.bytes_sent - before[1],
            )
        assert same is None or comm.rank in same.ranks
        TIMELINE.write(tmp_path, comm.rank, training.executor.timeline.columns())

    run_threads(ranks, work, 20)
    told = TIMELINE.read_all(tmp_path, ranks)
    sent = {
        (link["source"], link["target"]): (link["messages"], link["bytes"] / 2)
        for link in summary(plan, told)["links"]
    }
    assert sent == links(plan, batch)
    if plan.mesh.tensor == 1 or ranks > 2:  # else the collectives of both count in the same books
        for rank in range(ranks):
            mine = [m for (source, _), m in sent.items() if source == rank]
            assert traffic[rank] == (sum(m for m, _ in mine), 2 * sum(n for _, n in mine))
    for (group, kind), (calls, nbytes) in collectives(plan, batch).items():
        for rank in group:
            events = told[rank]
            here = events["step"] == 2
            if kind == "all_reduce gradients":
                here &= events["kind"] == KINDS.index("reduce")
            else:
                here &= events["kind"] == KINDS.index("collective")
                here &= events["backward"] == (kind.endswith("backward"))
                alike = [
                    m
                    for (g, k), m in collectives(plan, batch).items()
                    if g == group and k.split()[-1] == kind.split()[-1]
                ]
                calls, nbytes = (sum(m[i] for m in alike) for i in (0, 1))
            assert (here.sum(), events["bytes"][here].sum() / 2) == (calls, nbytes), kind


# --- on disk ------------------------------------------------------------------------------------


def frozen(**settings: Any) -> Plan:
    arm = {"optimizer": {"name": "sgd", "lr": 0.1}, "world_size": 2, "split": settings}
    told = {
        "name": "t",
        "title": {"en": "t"},
        "model": "lenet",
        "data": {"name": "digits"},
        "arms": {"one": {**arm, "batch_size": 64, "updates": 3}},
    }
    return freeze(Experiment.model_validate(told), DIGITS)


@pytest.mark.parametrize(
    "settings",
    [
        {"cut": ["flatten"], "micro_batches": 4},
        {"balance": "activations", "schedule": "gpipe"},
        {"balance": "time", "stages": 4, "schedule": "interleaved", "micro_batches": 2},
        {"balance": "time", "tensor": 2},
        {"tensor": 2, "layers": {"fc1": "column", "fc2": "row"}},
        {"data": 2},
        {"grid": [["0F0", ".", ".", "0B0"], [".", "1F0", "1B0", "."]]},
    ],
    ids=str,
)
def test_a_plan_on_disk_is_the_plan(settings: dict[str, Any], tmp_path: Path) -> None:
    plan = frozen(**settings)
    save_plan(plan, tmp_path)
    again = restore_plan(tmp_path)
    assert again.hash == plan.hash
    assert again.splits == plan.splits
    told = json.loads((tmp_path / "plan.json").read_text())["splits"]["one"]
    mine = plan.splits["one"]
    assert told == json.loads(json.dumps({"cut": list(mine.cut), **traffic.describe(mine, 64)}))
    assert told["stages"] == mine.stages
    assert [link["nbytes"] for link in told["links"]] == [
        link.nbytes for link in traffic.links(mine, 64)
    ]
    assert sum(r["elements"] for r in told["ranks"]) >= WHOLE


def test_another_cut_is_another_plan(tmp_path: Path) -> None:
    plans = [frozen(cut=[at]) for at in ("flatten", "fc1", "fc1")]
    assert plans[0].hash != plans[1].hash == plans[2].hash
    assert {p for p in plans[0].parts if plans[0].parts[p] != plans[1].parts[p]} == {"experiment"}
    plan = frozen(balance="time")
    save_plan(plan, tmp_path)
    told = json.loads((tmp_path / "plan.json").read_text())
    other = "fc2" if told["splits"]["one"]["cut"] != ["fc2"] else "fc1"
    told["splits"]["one"]["cut"] = [other]
    (tmp_path / "plan.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="the plan was changed after it was made: experiment"):
        restore_plan(tmp_path)


def test_a_measured_cut_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured cut is kept: a plan that is read back has the cut found when it was made."""
    slow = dict.fromkeys(model("lenet").shapes(), 1e-6) | {"relu2": 1.0, "fc2": 1.0}
    monkeypatch.setattr("dualml.experiment.freeze.reference_times", lambda *_: slow)
    plan = frozen(balance="time")
    assert plan.splits["one"].cut == ("pool2",)
    save_plan(plan, tmp_path)
    monkeypatch.setattr("dualml.experiment.freeze.reference_times", lambda *_: 1 / 0)
    assert restore_plan(tmp_path).splits["one"].cut == ("pool2",)
    np.testing.assert_equal(restore_plan(tmp_path).hash, plan.hash)
