"""Accelerate and DeepSpeed in whole runs, and what they do unasked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import on_ranks, require

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
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("torch", "accelerate", "deepspeed"):
        require(module)
    folder = tmp_path_factory.mktemp("engines")
    text = 'name = "engines"\nmodel = "softmax"\ntitle = { en = "x" }\ndata = { name = "digits" }\n'
    text += "".join(ARM.format(name=name, more=more) for name, more in ARMS.items())
    (folder / "engines.toml").write_text(text)
    words = ["run", folder / "engines.toml", "--backend", "torch", "--out", folder / "out"]
    done = subprocess.run([sys.executable, "-P", "-m", "dualml", *map(str, words)],
                          capture_output=True, text=True, timeout=380, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "out"


def test_every_engine_trains_what_one_process_trains(out: Path) -> None:
    parity = json.loads((out / "parity.json").read_text())
    verdicts = {s["arm"]: s["verdict"] for s in parity["serial"]}
    assert verdicts == dict.fromkeys(list(ARMS)[1:], "equal")


def test_a_launcher_that_starts_one_process_for_two_is_named_and_not_ranked(out: Path) -> None:
    trials: dict[str, Any] = {
        t["arm"]: t for t in json.loads((out / "run.json").read_text())["trials"]
    }
    sizes = {arm: t.get("world_size", 1) for arm, t in trials.items()}
    assert sizes == {"single": 1, "alone": 1, "launch-cpu": 1} | dict.fromkeys(
        ("torchrun", "launch", "zero1", "zero2"), 2
    )
    page = (out / "report.html").read_text()
    ranked = page[page.index('id="table-methods"') :].partition("</table>")[0]
    others = page[page.index('id="table-others"') :].partition("</table>")[0]
    assert "launch-cpu" not in ranked
    assert "zero2" in ranked
    assert "launch-cpu" in others
    assert "1 process trained in place of 2" in others
    assert "torchrun" not in others


def test_deepspeed_clips_gradients_unless_it_is_told_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("deepspeed")
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    argument = {"backend": "torch", "methods": ["deepspeed_zero1"]}
    ranks = on_ranks("torch", 2, "engine_cases:unasked_clipping", argument, timeout=90)
    for run in ranks[0]["deepspeed_zero1"]["runs"]:
        assert run["losses"] > 0.05
