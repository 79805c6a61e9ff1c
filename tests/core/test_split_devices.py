"""Stages on several devices of one process: transfers, and user errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import dualml, run
from conformance import split

from dualml.algorithms.model import model
from dualml.backend.devices import check_present, shift_devices
from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import Unsupported, UserError
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.split import Split
from dualml.experiment.store.plan import restore_plan, save_plan
from dualml.parallel.split import traffic
from dualml.parallel.split.placed_executor import PlacedExecutor
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.timeline_stats import summary

DIGITS = load_data("digits", explicit=True)
TWO = {"engine": "devices", "devices": ["cpu:0", "cpu:1"]}
TOML = """
name = "tiny-devices"
model = "mlp"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 30, test = 20 }
evaluation = { train_samples = 10, early = [] }
parity = { draws = 1, horizon = 3, trace = [1, 2, 3] }
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
[arms.two]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
split = { engine = "devices", place = [0, 1, 0], devices = ["cpu:0", "cpu:1"] }
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "tiny-devices.toml"
    path.write_text(TOML)
    return path


def planned_transfers(plan: SplitPlan, batch: int) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Return (process, from, to) → values and bytes of an update, by the plan."""
    found: dict[tuple[int, str, str], tuple[int, int]] = {}
    for each in traffic.transfers(plan, batch):
        key = each["rank"], each["source"], each["target"]
        count, nbytes = found.get(key, (0, 0))
        found[key] = count + each["messages"], nbytes + each["nbytes"]
    return found


def test_transfers_by_hand() -> None:
    """The moved bytes of LeNet: 6·14·14 numbers per sample after pooling, 120 after relu3, 4 bytes
    each; all of micro-batches of 4, 3 and 3 samples move there and back."""
    plan = Split(cut=["conv2", "fc2"], place=[0, 1, 0], micro_batches=3, **TWO).plan(
        model("lenet"), 1
    )
    both = 10 * 4 * (6 * 14 * 14 + 120)
    assert planned_transfers(plan, 10) == {
        (0, "cpu:0", "cpu:1"): (6, both),
        (0, "cpu:1", "cpu:0"): (6, both),
    }
    assert traffic.links(plan, 10) == []
    assert traffic.collectives(plan, 10) == []
    assert plan.schedule == "naive"


def test_stages_on_one_device_hand_over_their_memory() -> None:
    plan = Split(place=[0, 0, 1], **TWO).plan(model("mlp"), 1)
    assert [plan.crosses(s, s + 1) for s in range(2)] == [False, True]
    assert planned_transfers(plan, 4) == {
        (0, "cpu:0", "cpu:1"): (1, 4 * 4 * plan.activation_numel(1)),
        (0, "cpu:1", "cpu:0"): (1, 4 * 4 * plan.activation_numel(1)),
    }


def measured(plan: SplitPlan, batch: int) -> dict[tuple[int, str, str], tuple[float, float]]:
    """Return the measured transfers in the same form; the reference's numbers are twice as wide."""
    case = {"model": "deep", "optimizer": "sgd", "loss": "cross_entropy", "sizes": [batch, batch]}

    def work(comm: Any) -> Any:
        training = split.make_training(comm, NumpyBackend(), case, plan)
        for step, samples in enumerate(split.batches(case), start=1):
            training.step(samples, step)
        return training.executor.timeline.columns()

    told = summary(plan, run_threads(plan.world_size, work, 20))
    assert told["links"] == []
    return {
        (x["rank"], x["source"], x["target"]): (x["messages"], x["bytes"] / 2)
        for x in told["transfers"]
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"place": [0, 1, 0], "micro_batches": 3},
        {"schedule": "gpipe", "micro_batches": 2},
        {"data": 2, "place": [0, 1, 1, 0], "micro_batches": 2},
    ],
    ids=str,
)
def test_bytes_that_moved_are_those_of_the_plan(settings: dict[str, Any]) -> None:
    plan = Split(**settings, **TWO).plan(split.SPECS["deep"], settings.get("data", 1))
    assert measured(plan, 7) == planned_transfers(plan, 7)


def test_a_value_that_is_not_moved_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only transfers are counted: without them, the measured bytes are not those of the plan."""
    plan = Split(place=[0, 1, 0], **TWO).plan(split.SPECS["deep"], 1)
    monkeypatch.delattr(PlacedExecutor, "send")
    assert measured(plan, 7) != planned_transfers(plan, 7)


def test_every_replica_has_accelerators_of_its_own() -> None:
    names = ["cuda:0", "cuda:2", "cpu:1"]
    assert shift_devices(names, 0) == ("cuda:0", "cuda:2", "cpu:1")
    assert shift_devices(names, 1) == ("cuda:3", "cuda:5", "cpu:1")


def test_a_plan_on_disk_is_the_plan(lab: Path, tmp_path: Path) -> None:
    plan = freeze(load(str(lab)), DIGITS)
    save_plan(plan, tmp_path)
    again = restore_plan(tmp_path)
    assert again.splits == plan.splits
    told = json.loads((tmp_path / "plan.json").read_text())["splits"]["two"]
    assert told["devices"] == ["cpu:0", "cpu:1", "cpu:0"]
    assert {x["rank"] for x in told["transfers"]} == {0}


def test_one_process_with_two_devices_is_the_whole_model(lab: Path, tmp_path: Path) -> None:
    code, told = run(lab, tmp_path / "out")
    assert code == 0, told
    (judged,) = json.loads((tmp_path / "out" / "parity.json").read_text())["serial"]
    assert (judged["arm"], judged["against"], judged["verdict"]) == ("two", "one", "equal")
    trials = json.loads((tmp_path / "out" / "run.json").read_text())["trials"]
    (two,) = [trial for trial in trials if trial["arm"] == "two"]
    assert {(x["source"], x["target"]) for x in two["split"]["transfers"]} == {
        ("cpu:0", "cpu:1"),
        ("cpu:1", "cpu:0"),
    }
    assert two["how"] == {"transfers": "native: numpy.ndarray.copy"}


WRONG: list[tuple[list[str], str]] = [
    (["split.devices=['cpu:0']"], "needs two or more in split.devices"),
    (["split.devices=['cpu:0', 'cpu:0']"], "names cpu:0 2 times; name each device once"),
    (["split.devices=['cpu:0', 'tpu:1']"], "'tpu:1' is no device; use cpu:0, cpu:1"),
    (["split.devices=['cpu:0', 'cpu:64']"], "'cpu:64' is no device"),
    (
        ["split.devices=['cpu:0', 'cpu:1', 'cpu:2']"],
        "place must give each of 3 stages one of 3 devices, numbered from 0 as in split.devices, "
        "and "
        "every device a stage; received [0, 1, 0]",
    ),
    (["split.engine='messages'", "world_size=2"], 'that needs engine = "devices"'),
    (["split.tensor=2"], "leave out split.tensor, or use engine = messages"),
    (["split.trainers=2"], "leave out split.trainers"),
    (["split.schedule='1f1b'"], "engine = devices takes schedule = naive or gpipe; received 1f1b"),
    (["world_size=2"], "engine = devices has all stages in each process: world_size must be"),
    (
        ["world_size=2", "split.data=2", "split.schedule='gpipe'", "split.micro_batches=2"],
        "use schedule = naive",
    ),
    (["split.transport='host'"], "engine = devices has its own: leave out transport"),
    (["zero=1", "world_size=2", "split.data=2"], "leave out engine = devices"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_one_line_with_the_numbers_and_the_remedy(
    lab: Path, words: list[str], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        freeze(load(str(lab), overrides=[f"arms.two.{word}" for word in words]), DIGITS)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_tied_parameter_lies_on_one_device() -> None:
    spec = split.SPECS["gpt"]
    cut = ["attention_branch1", "norm"]
    Split(cut=cut, place=[0, 1, 0], **TWO).plan(spec, 1)
    with pytest.raises(UserError, match="is of layers in stages on cpu:0 and cpu:1"):
        Split(cut=cut[:1], **TWO).plan(spec, 1)


def test_devices_that_are_not_there_are_named_with_those_that_are() -> None:
    check_present(["cpu:3", "cuda:1"], {"cuda": 2}, {})
    with pytest.raises(Unsupported) as refused:
        check_present(["cpu:0", "cuda:2"], {"cuda": 2}, {})
    assert str(refused.value) == (
        "split.devices: cuda:2 is not there; there are cpu:0 to cpu:63 (logical), cuda:0, cuda:1"
    )


def test_the_run_says_so_and_goes_on(lab: Path, tmp_path: Path) -> None:
    words = ["--set", "arms.two.split.devices=['cuda:0', 'cuda:1']"]
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "out", *words)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "out" / "run.json").read_text())["trials"]
    two = next(trial for trial in told if trial["arm"] == "two")
    assert two["status"] == "unsupported"
    assert two["reason"].startswith(
        "split.devices: cuda:0 is not there (NumPy drives the CPU only)"
    )
