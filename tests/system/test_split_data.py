"""Ranks that are processes read only the data that their stages need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.system

TOML = """
name = "tiny-data"
model = "mlp"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 60, test = 20 }
evaluation = { train_samples = 10, early = [] }
parity = { draws = 1, horizon = 3, trace = [1, 2, 3] }
[arms.pipe]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
world_size = 2
split = { cut = ["fc2"] }
[arms.rpc]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
world_size = 2
split = { engine = "rpc", cut = ["fc2"] }
"""
X, Y = (60 + 20) * 784 * 4, (60 + 20) * 8


def test_bytes_that_each_process_has_read(tmp_path: Path) -> None:
    """Reads are counted per arm: one process runs two arms, and the second does not see the first
    one's reads."""
    lab = tmp_path / "tiny-data.toml"
    lab.write_text(TOML)
    words = ["run", str(lab), "--backend", "both", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "dualml", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    trials = json.loads((tmp_path / "out" / "run.json").read_text())["trials"]
    read = {
        (trial["arm"], trial["backend"]): [
            (r["sample_bytes"], r["label_bytes"]) for r in trial["memory"]
        ]
        for trial in trials
        if trial["status"] == "ok"
    }
    expected = {("pipe", name): [(X, 0), (0, Y)] for name in ("torch", "mindspore")}
    assert read == {**expected, ("rpc", "torch"): [(X, Y), (0, 0)]}
