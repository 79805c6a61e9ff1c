"""The planner's predictions against real ranks: their memory, and the largest model under a
limit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import dualml

from dualml.experiment.store.load import load
from dualml.planning.planner.arm import arm_from_layout
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.zoo import shape_by_name
from dualml.report.plan.measured import compare_memory

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
LAYOUTS = {
    "zero-3 full": {"dp": 2, "zero": 3, "recompute": "full"},
    "stages": {"pp": 2},
    "inside full": {"tp": 2, "recompute": "full"},
}
SMALL = (
    "--set",
    "sizes.width=128",
    "--set",
    "sizes.tied=false",
    "--set",
    "data.words=100",
    "--set",
    "data.length=16",
)


def run_dualml(*words: object) -> Any:
    env = {**os.environ, "COLUMNS": "250"}
    return subprocess.run(dualml(*words), capture_output=True, text=True, env=env, check=False)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def test_ranks_hold_what_the_planner_says(tmp_path: Path) -> None:
    """Measured states equal the prediction exactly, activations within 2 %, on two processes
    each."""
    require("torch")
    overrides = ["sizes.width=32", "sizes.heads=4", "data.words=100", "data.length=16"]
    shape = shape_by_name("gpt_llama", overrides)
    text = """
name = "held"
title = { en = "x", zh = "x" }
model = "gpt_llama"
sizes = { width = 32, heads = 4 }
data = { name = "sentences", words = 100, length = 16, train = 64, test = 16 }
parity = { draws = 1, horizon = 1 }
evaluation = { early = [], train_samples = 16 }
"""
    for name, keys in LAYOUTS.items():
        x = Layouts.from_axes(16, micro=4, **keys)  # type: ignore[arg-type]
        arm = {**arm_from_layout(shape, x.describe(0)), "optimizer": {"name": "adam", "lr": 0.001}}
        text += f"[arms.{name.replace(' ', '-')}]\nupdates = 1\n"
        text += "".join(f"{key} = {toml(value)}\n" for key, value in arm.items())
    path, out = tmp_path / "held.toml", tmp_path / "out"
    path.write_text(text)
    done = run_dualml("run", path, "--backend", "torch", "--out", out, "--no-report")
    assert done.returncode == 0, done.stderr
    rows = list(compare_memory(load([out])))
    assert len(rows) == 2 * len(LAYOUTS)
    for row in rows:
        assert row.error("weights", "gradients", "state") == 0, row
        assert abs(row.error("activations")) < 0.02, row
    told = json.loads(run_dualml("plan", "--run", out, "--json").stdout)["ranks"]
    assert [each["counted"] for each in told] == [row.counted for row in rows]
    shown = run_dualml("plan", "--run", out).stdout
    assert "dp 2 · pp 1 · tp 1, ZeRO-3, b 4, full" in shown


def test_one_block_more_is_out_of_memory(tmp_path: Path) -> None:
    require("torch")
    done = run_dualml(
        "largest", "gpt", "--memory", "12MB", "--updates", "2", *SMALL, "--out", tmp_path, "--json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    tries = {tried["blocks"]: tried for tried in row["tries"]}
    best, above = tries[row["blocks"]], tries[row["blocks"] + 1]
    assert best["fits"]
    assert best["losses"][1] < best["losses"][0]
    assert best["held_bytes"] < 12e6
    assert not above["fits"]
    assert "out of memory: the limit of 12,000,000 bytes" in above["reason"]
    assert "Traceback" not in above["reason"] + done.stderr
    assert json.loads((tmp_path / "largest.json").read_text())["rows"] == [row]
