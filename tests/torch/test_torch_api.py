"""The Python API with a framework: trained in separate processes, judged against the reference."""

from __future__ import annotations

import sys
from pathlib import Path

import dualml

TOML = """
name = "tiny"
model = "softmax"
title = { en = "Tiny", zh = "小" }
[data]
name = "digits"
train = 200
test = 50
[arms.adam]
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 2
"""


def test_a_run_from_python(tmp_path: Path) -> None:
    lab = tmp_path / "tiny.toml"
    lab.write_text(TOML)
    before = "torch" in sys.modules
    run = dualml.run(
        lab,
        backend=["numpy", "torch"],
        out=tmp_path / "run",
        settings={"arms.adam.epochs": 1},
        report=False,
        progress=False,
    )
    assert ("torch" in sys.modules) == before
    assert (run.verdict, run.backends) == ("equal", ["numpy", "torch"])
    ours, referee = (run.curve(backend=backend).value for backend in ("torch", "numpy"))
    assert len(ours) == 10
    assert abs(ours - referee).max() < 1e-5 * referee.max()
