"""A third framework is one new package: found by its entry point, run, and compared.

The package here computes with the referee's code and keeps its numbers in float32; planted faults
show that the verdict sees them and names the right phase.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULE = """
from dataclasses import replace
import os
import numpy as np
from dualml.backend import BackendInfo
from dualml.reference.backend import NumpyBackend, NumpyTraining
from dualml.reference.model import Model

FAULT = os.environ.get("FAULT", "")

def single(arrays):
    return {k: np.asarray(v, np.float32).astype(np.float64) for k, v in arrays.items()}

class Training(NumpyTraining):
    def __init__(self, model, rule, *rest):
        if FAULT == "epsilon":
            rule = replace(rule, eps_form="hat")
        super().__init__(model, rule, *rest)
        if FAULT == "labels":
            self.y = np.roll(self.y, 1)
    def gradient(self, batch):
        loss, grads = super().gradient(batch)
        if FAULT == "sum":
            grads = {k: g * len(batch) for k, g in grads.items()}
        return float(np.float32(loss)), single(grads)
    def step(self, batch, step):
        if FAULT == "stale" and step == 4:
            return self.gradient(batch)[0]
        loss = super().step(batch, step)
        self.model.weights = single(self.model.weights)
        self._state = {slot: single(named) for slot, named in self._state.items()}
        return loss

class Backend(NumpyBackend):
    name, dtype = "single", "float32"
    def training(self, spec, weights, rule, schedule, loss, x, y, *, updates, chunk=256):
        return Training(Model(spec, weights), rule, schedule, loss, x, y, updates, chunk)

def info():
    return BackendInfo(name="single", framework="numpy", install="pip install single",
                       factory="single_backend:Backend")
"""

TOML = """
name = "third"
model = "mlp"
title = { en = "Third" }
data = { name = "digits", train = 200, test = 50 }
parity = { draws = 2, horizon = 20, trace = [1, 2, 3, 5, 10, 20] }
[arms.adam]
optimizer = { name = "adam", lr = 0.001, eps = 0.001 }
batch_size = 20
updates = 20
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The backend's package as pip would have installed it."""
    site = tmp_path / "site"
    meta = site / "single_backend-1.0.dist-info"
    meta.mkdir(parents=True)
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: single-backend\nVersion: 1.0\n")
    (meta / "entry_points.txt").write_text("[dualml.backends]\nsingle = single_backend:info\n")
    (site / "single_backend.py").write_text(MODULE)
    (tmp_path / "third.toml").write_text(TOML)
    return tmp_path


def run(package: Path, fault: str) -> tuple[int, dict[str, Any]]:
    path = os.pathsep.join([str(package / "site"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dualml",
            "run",
            str(package / "third.toml"),
            "--backend",
            "single,numpy",
            "--out",
            str(package / "out"),
            "--no-report",
            "--no-find",
            "--json",
        ],
        env={**os.environ, "PYTHONPATH": path, "FAULT": fault},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert [t["status"] for t in told["trials"]] == ["ok", "ok"], told["trials"]
    (comparison,) = told["parity"]
    return done.returncode, comparison


def test_a_correct_backend_is_equal(package: Path) -> None:
    code, found = run(package, "")
    assert (code, found["verdict"]) == (0, "equal")
    assert found["phases"]["update"]["max"] > 0, "float32 must differ from float64 somewhere"


@pytest.mark.parametrize(("fault", "step", "phase"), [
    ("epsilon", 1, "update"),
    ("labels", 1, "data"),
    ("sum", 1, "gradient"),
    ("stale", 5, "loss"),
])  # fmt: skip
def test_a_planted_fault_is_different_and_its_phase_named(
    package: Path, fault: str, step: int, phase: str
) -> None:
    code, found = run(package, fault)
    assert (code, found["verdict"]) == (3, "different")
    first = found["first_divergence"]
    assert (
        (first["step"], first["phase"]) in {(step, phase), (5, "forward")}
        if fault == "stale"
        else ((first["step"], first["phase"]) == (step, phase))
    )
