"""Accelerate and DeepSpeed in whole runs, and their unrequested defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import on_ranks, require

from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

HERE = Path(__file__).resolve().parent
ARM = """
[arms.{name}]
optimizer = {{ name = "sgd", lr = 0.1, momentum = 0.9 }}
batch_size = 60
updates = 20
{more}
"""
TWO = 'method = "{}"\nworld_size = 2\n'
ARMS = {
    "single": "",
    "alone": 'method = "accelerate"',
    "torchrun": TWO.format("accelerate") + 'launcher = "torchrun"',
    "launch": TWO.format("accelerate") + 'launcher = "accelerate"',
    "launch-cpu": TWO.format("accelerate") + 'launcher = "accelerate-cpu"',
    "zero1": TWO.format("deepspeed_zero1"),
    "zero2": TWO.format("deepspeed_zero2"),
    "zero3": TWO.format("deepspeed_zero3"),
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("torch", "accelerate", "deepspeed"):
        require(module)
    folder = tmp_path_factory.mktemp("engines")
    text = 'name = "engines"\nmodel = "softmax"\ntitle = { en = "x" }\ndata = { name = "digits" }\n'
    text += "".join(ARM.format(name=name, more=more) for name, more in ARMS.items())
    (folder / "engines.toml").write_text(text)
    words = ["run", folder / "engines.toml", "--backend", "torch", "--out", folder / "out"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dualml", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "out"


def test_every_engine_trains_what_one_process_trains(run_folder: Path) -> None:
    parity = json.loads((run_folder / "parity.json").read_text())
    verdicts = {s["arm"]: s["verdict"] for s in parity["serial"]}
    assert verdicts == dict.fromkeys(list(ARMS)[1:], "equal")


def test_a_launcher_that_starts_one_process_for_two_is_named_and_not_ranked(
    run_folder: Path,
) -> None:
    trials: dict[str, Any] = {
        t["arm"]: t for t in json.loads((run_folder / "run.json").read_text())["trials"]
    }
    sizes = {arm: t.get("world_size", 1) for arm, t in trials.items()}
    assert sizes == {"single": 1, "alone": 1, "launch-cpu": 1} | dict.fromkeys(
        ("torchrun", "launch", "zero1", "zero2", "zero3"), 2
    )
    page = (run_folder / "report.html").read_text()
    ranked = page[page.index('id="table-methods"') :].partition("</table>")[0]
    others = page[page.index('id="table-others"') :].partition("</table>")[0]
    assert "launch-cpu" not in ranked
    assert "zero2" in ranked
    assert "launch-cpu" in others
    assert "1 process trained in place of 2" in others
    assert "torchrun" not in others


FEELINGS = """
name = "tested"
model = "text_classifier"
title = { en = "x" }
data = { name = "feelings", labels = true, words = 120, length = 16, train = 640, test = 151 }
"""
TESTED = {
    "single": "",
    "loader": TWO.format("accelerate_loader"),
    "metrics": TWO.format("accelerate_metrics"),
    "unprepared": TWO.format("accelerate_tests_all"),
    "config": TWO.format("deepspeed_zero2") + 'method_config = "ds.json"\nlauncher = "deepspeed"',
    "pipeline": TWO.format("deepspeed_pipeline"),
    "bf16": TWO.format("deepspeed_bf16"),
}


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("torch", "accelerate", "deepspeed"):
        require(module)
    folder = tmp_path_factory.mktemp("tested")
    arms = "".join(ARM.format(name=name, more=more) for name, more in TESTED.items())
    (folder / "tested.toml").write_text(FEELINGS + arms)
    (folder / "ds.json").write_text(
        json.dumps(
            {
                "train_batch_size": 60,
                "zero_optimization": {"stage": 2, "reduce_bucket_size": 200000},
            }
        )
    )
    words = ["run", folder / "tested.toml", "--backend", "torch", "--out", folder / "out"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dualml", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "out"


def test_a_prepared_loader_deals_out_every_sample_of_the_plan(tested: Path) -> None:
    """A prepared loader delivers every sample of the plan: of 640 samples the last batch gets 40,
    in slices of 30 and 10."""
    trials = {t["arm"]: t for t in json.loads((tested / "run.json").read_text())["trials"]}
    assert [rank["n"] for rank in trials["loader"]["samples"]] == [11 * 30 + 9 * 30, 600 - 20]
    assert [rank["n"] for rank in trials["metrics"]["samples"]] == [10 * 30 + 20 + 9 * 30] * 2
    page = (tested / "report.html").read_text()
    ranked = page[page.index('id="table-methods"') :].partition("</table>")[0]
    assert ">loader<" in ranked


def test_samples_that_every_process_tests_are_named(tested: Path) -> None:
    trials = {t["arm"]: t for t in json.loads((tested / "run.json").read_text())["trials"]}
    support = {arm: t["classification"]["support"] for arm, t in trials.items()}
    assert support == {**dict.fromkeys(TESTED, 151), "unprepared": 302}
    page = (tested / "report.html").read_text()
    others = page[page.index('id="table-others"') :].partition("</table>")[0]
    assert "its test counted 302 samples; the test set has 151" in others
    assert "metrics" not in others


def test_a_config_decides_the_bucket_and_nothing_that_is_trained(tested: Path) -> None:
    trials = {t["arm"]: t for t in json.loads((tested / "run.json").read_text())["trials"]}
    assert [rank["buckets"] for rank in trials["config"]["device_memory"]] == [4 * 200000] * 2
    parity = json.loads((tested / "parity.json").read_text())
    verdicts = {s["arm"]: s["verdict"] for s in parity["serial"] if s["arm"] != "bf16"}
    assert verdicts == dict.fromkeys(list(TESTED)[1:-1], "equal")


def test_a_lower_precision_starts_from_the_weights_of_the_plan(tested: Path) -> None:
    """Float32 weights that were made of rounded ones are refused before the first update."""
    trials = {t["arm"]: t for t in json.loads((tested / "run.json").read_text())["trials"]}
    assert trials["bf16"]["status"] == "ok"
    first = {}
    for arm in ("single", "bf16"):
        lines = (tested / "trials" / arm / "torch" / "seed0" / "rank0.jsonl").open()
        records = (json.loads(line) for line in lines)
        first[arm] = next(r["value"] for r in records if r["metric"] == "loss")
    assert first["bf16"] != first["single"]
    assert first["bf16"] == pytest.approx(first["single"], rel=2e-3)


def test_the_groups_of_a_pipeline_are_recorded(tested: Path) -> None:
    trials = {t["arm"]: t for t in json.loads((tested / "run.json").read_text())["trials"]}
    assert trials["pipeline"]["how"] == {"pipe groups": "0 1", "data groups": "0; 1"}
    assert "pipe groups (0 1); data groups (0) (1)" in (tested / "report.html").read_text()


def on_two(
    monkeypatch: pytest.MonkeyPatch, case: str, argument: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run a function of `engine_cases` on two ranks and return their results."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return on_ranks("torch", 2, f"engine_cases:{case}", argument, timeout=90)


def test_deepspeed_clips_gradients_unless_it_is_told_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("deepspeed")
    argument = {"backend": "torch", "methods": ["deepspeed_zero1"]}
    ranks = on_two(monkeypatch, "unasked_clipping", argument)
    for run in ranks[0]["deepspeed_zero1"]["runs"]:
        assert run["losses"] > 0.05


def test_an_engine_of_another_world_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require("accelerate")
    for said in on_two(monkeypatch, "other_sizes", {}):
        assert "trains in 1 process; the trial has 2 processes" in said["accelerate"]
        assert "trains in 2 processes; the trial has 1 process" in said["single"]


@pytest.mark.parametrize("method", ["deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3"])
def test_deepspeed_skips_infinite_gradients_in_float32_too_until_the_trial_ends(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("deepspeed")
    for rank in on_two(monkeypatch, "overflow", {"method": method}):
        assert rank["lost"] == list(range(1, MAX_SKIPPED_UPDATES))
        assert f"{MAX_SKIPPED_UPDATES} updates in a row were skipped" in rank["said"]
        assert not rank["moved"]
        assert rank["state"] == {
            "scale": 1.0,
            "lost": MAX_SKIPPED_UPDATES,
            "skipped": MAX_SKIPPED_UPDATES,
        }


def test_what_shards_hold_stands_beside_the_closed_form(run_folder: Path) -> None:
    """Memory follows the closed form: 784 · 10 + 10 parameters, padded so that each of two ranks'
    parts is even."""
    trials = {t["arm"]: t for t in json.loads((run_folder / "run.json").read_text())["trials"]}
    psi = 7850
    for arm in ("zero1", "zero2"):
        ranks = trials[arm]["device_memory"]
        assert [rank["weights"] for rank in ranks] == [4 * psi] * 2
        assert [rank["gradients"] for rank in ranks] == [4 * (psi + 2) // 2] * 2
        assert [rank["state"] for rank in ranks] == [2 * 4 * (psi + 2) // 2] * 2
    # In stage 3 every tensor is padded, and its part is what the optimizer updates.
    ranks = trials["zero3"]["device_memory"]
    for part in ("weights", "gradients", "state"):
        assert [rank[part] for rank in ranks] == [4 * psi // 2] * 2
    assert [rank["state"] for rank in trials["torchrun"]["device_memory"]] == [4 * psi] * 2
    page = (run_folder / "report.md").read_text()
    assert "(4 + 4/2 + 8/2)Ψ" in page
    assert "zero1 on torch gradients +8 B and optimizer's state +16 B" in page
    assert "a bucket of 5·10⁸ numbers" in page
