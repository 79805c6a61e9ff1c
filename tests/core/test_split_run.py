"""Whole runs of split models, with threads of the reference as ranks (no framework needed)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml, goes_on_when_interrupted, run, strict
from safetensors.numpy import load_file

from dualml.algorithms.model import model
from dualml.experiment.store.plan import restore_plan
from dualml.experiment.store.times import TIMELINE
from dualml.parallel.split import traffic
from dualml.parallel.split.schedules import live_bound
from dualml.parallel.split.timeline import COLUMNS, KINDS

pytestmark = pytest.mark.whole

HEAD = """
name = "splits"
model = "lenet"
title = { en = "Splits", zh = "拆分" }
data = { name = "digits", train = 100, test = 30 }
evaluation = { train_samples = 20, per_epoch = 1, early = [] }
parity = { draws = 1, horizon = 8, trace = [1, 2, 5, 8] }
[arms.one]
optimizer = { name = "adam", lr = 0.001 }
batch_size = 17
updates = 8
"""
ARM = """
[arms.{name}]
optimizer = {{ name = "adam", lr = 0.001 }}
batch_size = 17
updates = 8
world_size = {size}
split = {{ {split} }}
"""
#: Arm → its ranks and its split. 100 samples in batches of 17: the sixth one has 15.
SPLITS = {
    "gpipe": (2, 'cut = ["flatten"], schedule = "gpipe", micro_batches = 4'),
    "ofob": (3, 'schedule = "1f1b", micro_batches = 5'),
    "woven": (2, 'stages = 4, schedule = "interleaved", micro_batches = 4'),
    "inside": (2, "tensor = 2, micro_batches = 2"),
    "mesh": (4, 'tensor = 2, cut = ["flatten"], micro_batches = 2'),
    "copies": (4, 'data = 2, balance = "activations", schedule = "naive", micro_batches = 2'),
    "timed": (2, 'balance = "time", micro_batches = 2'),
    "shared": (3, 'trainers = 2, cut = ["conv2", "fc2"], place = [0, 1, 0], micro_batches = 4'),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "splits.toml"
    arms = (ARM.format(name=n, size=size, split=split) for n, (size, split) in SPLITS.items())
    path.write_text(HEAD + "".join(arms), "utf-8")
    return path


@pytest.fixture(scope="module")
def run_folder(lab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("run") / "out"
    code, told = run(lab, found)
    assert code == 0, told
    return found


def trials(run_folder: Path) -> dict[str, dict[str, Any]]:
    return {t["arm"]: t for t in strict((run_folder / "run.json").read_text())["trials"]}


def test_every_split_is_the_whole_model(run_folder: Path) -> None:
    told = strict((run_folder / "parity.json").read_text())["serial"]
    assert {c["arm"]: (c["against"], c["verdict"], c["reason"]) for c in told} == dict.fromkeys(
        SPLITS, ("one", "equal", "inside_envelope")
    )
    one = load_file(run_folder / "trials/one/numpy/seed0/weights.safetensors")
    traced = load_file(run_folder / "trials/one/numpy/seed0/trace.safetensors")
    for arm in SPLITS:
        place = run_folder / f"trials/{arm}/numpy/seed0"
        mine, trace = (load_file(place / f"{n}.safetensors") for n in ("weights", "trace"))
        assert (mine.keys(), trace.keys()) == (one.keys(), traced.keys())
        for found, whole in ((mine, one), (trace, traced)):
            for name, value in whole.items():
                np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("arm", list(SPLITS))
def test_what_is_told_of_the_ranks(run_folder: Path, arm: str) -> None:
    trial, plan = trials(run_folder)[arm], restore_plan(run_folder / "plan").splits[arm]
    size = SPLITS[arm][0]
    assert (trial["status"], trial["world_size"]) == ("ok", size)
    assert len(trial["ranks"]) == len(trial["memory"]) == size
    for rank in trial["ranks"]:
        assert set(rank) == {"compute_s", "transfer_s", "wait_s", "update_s", "step_s"}
        assert all(seconds >= 0 for seconds in rank.values())
        spent = rank["compute_s"] + rank["transfer_s"] + rank["wait_s"]
        assert 0 < spent <= rank["step_s"] * 1.001
    told = trial["split"]
    assert 0 <= told["bubble_low"] <= told["bubble"] <= told["bubble_high"] < 1
    assert 0 <= told["bubble_passes"] <= told["bubble"] + 1e-9
    assert told["updates"] == 8
    used = {(link["source"], link["target"]) for link in told["links"]}
    assert used == {(link.source, link.target) for link in traffic.links(plan, 17)}
    assert ("isend and irecv" in trial["how"]) == (len(plan.stages) > 1)
    summed = plan.mesh.tensor > 1 or bool(plan.same_parameters())
    assert ("all_reduce" in trial["how"]) == summed


@pytest.mark.parametrize("arm", list(SPLITS))
def test_what_the_ranks_hold(run_folder: Path, arm: str) -> None:
    """The measured number of live micro-batches never exceeds the schedule's, and equals it where
    every rank must."""
    memory, plan = trials(run_folder)[arm]["memory"], restore_plan(run_folder / "plan").splits[arm]
    for rank, told in enumerate(memory):
        row, m = plan.pipeline_row(rank), plan.micro_batches
        assert told["live"] == plan.live(rank)
        assert told["live"] <= live_bound(plan.schedule, plan.place, m, row)
        assert told["held_bytes"] > 0
        elements = sum(int(np.prod(p.local_shape)) for p in plan.rank_stages(rank)[1].values())
        assert told["parameter_bytes"] == 8 * elements
    by_hand = {
        "gpipe": [4, 4],
        "ofob": [3, 2, 1],
        "inside": [1, 1],
        "copies": [1] * 4,
        "mesh": [2, 2, 1, 1],
    }
    if arm in by_hand:
        assert [told["live"] for told in memory] == by_hand[arm]


@pytest.mark.parametrize("arm", list(SPLITS))
def test_timelines(run_folder: Path, arm: str) -> None:
    plan = restore_plan(run_folder / "plan").splits[arm]
    for rank in range(plan.world_size):
        events = TIMELINE.read(run_folder / f"trials/{arm}/numpy/seed0", rank)
        assert set(events) == set(COLUMNS)
        assert (events["end"] >= events["begin"]).all()
        assert set(events["step"]) == set(range(1, 9))
        for step in (1, 6):
            mine = events["step"] == step
            for kind in "FB":
                done = mine & (events["kind"] == KINDS.index(kind))
                order = [(a.stage, a.micro) for a in plan.program(rank) if a.kind == kind]
                pairs = zip(events["stage"][done], events["micro"][done], strict=True)
                assert [(int(s), int(m)) for s, m in pairs] == order
            assert (mine & (events["kind"] == KINDS.index("update"))).sum() == 1
    one = run_folder / "trials/one/numpy/seed0"
    assert not list(one.glob("*timeline*"))


def test_a_cut_by_measured_times_is_the_cut_of_the_run(run_folder: Path) -> None:
    told = json.loads((run_folder / "plan/plan.json").read_text())["splits"]["timed"]
    again = restore_plan(run_folder / "plan")
    assert again.splits["timed"].cut == tuple(told["cut"]) != ()
    assert again.experiment.arms["timed"].split.balance == "time"  # type: ignore[union-attr]
    memory = trials(run_folder)["timed"]["memory"]
    assert [m["parameter_bytes"] / 8 for m in memory] == [r["elements"] for r in told["ranks"]]
    assert dualml("run", "--resume", run_folder, "--no-report").returncode == 0


@pytest.mark.parametrize("arm", ["mesh", "shared"])
def test_an_interrupted_split_goes_on_as_if_nothing_had_been(
    lab: Path, tmp_path: Path, arm: str
) -> None:
    more = [
        "--set",
        f"arms.{arm}.updates=20",
        "--set",
        "evaluation.per_epoch=1",
        "--set",
        "evaluation.train_samples=2",
        "--set",
        "data.test=2",
    ]
    goes_on_when_interrupted(lab, tmp_path, arm, *more)


def test_a_slow_rank_is_slow_inside_the_layers_it_shares_whatever_its_number() -> None:
    from types import SimpleNamespace
    from typing import cast

    from dualml.algorithms.communicator import Communicator
    from dualml.backend.reference.communicator import run_threads
    from dualml.backend.stage import Stage
    from dualml.parallel.aggregation.straggler import Straggler
    from dualml.parallel.split.plan import split_plan
    from dualml.parallel.split.rank import PipelineRank

    plan = split_plan(model("mlp"), 4, tensor=2, data=2)

    def work(comm: Communicator) -> list[float]:
        rank = PipelineRank(plan, comm, cast(Stage, SimpleNamespace(concat=np.concatenate)))
        rank.slow, rank.step_count = Straggler(rank=3, latency_s=0.05), 1
        row, spent = rank.tp_group, []
        assert row is not None
        x = np.ones(8)
        for call in (
            lambda: rank.all_reduce_sum(row, x),
            lambda: rank.all_gather_concat(row, x, 0),
        ):
            comm.barrier()
            begin = time.perf_counter()
            call()
            spent.append(time.perf_counter() - begin)
        return spent

    for rank, (summed, gathered) in enumerate(run_threads(4, work)):
        late = rank > 1  # the slow one, and the one that shares its layers
        assert (summed > 0.08) == (gathered > 0.04) == late, (rank, summed, gathered)
