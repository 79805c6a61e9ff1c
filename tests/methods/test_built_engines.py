"""Engines that compile for minutes before they train; `make test-all` runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.backends import on_ranks, require

ROOT = Path(__file__).resolve().parents[2]
RUN = """
name = "built"
model = "text_classifier"
title = { en = "x" }
data = { name = "feelings", labels = true, words = 120, length = 16, train = 600 }
[arms.single]
optimizer = { name = "adam", lr = 0.001 }
batch_size = 60
updates = 10
"""
ARM = """
[arms.{0}]
method = "{0}"
optimizer = {{ name = "adam", lr = 0.001 }}
batch_size = 60
updates = 10
world_size = 2
launcher = "horovodrun"
"""


@pytest.mark.slow("DeepSpeed compiles for minutes; offload to memory takes the same way")
@pytest.mark.timeout(1800)
def test_weights_and_state_in_files() -> None:
    require("deepspeed")
    if not Path("/usr/include/libaio.h").exists():
        pytest.skip("DeepSpeed's disks need libaio: apt-get install libaio-dev")
    argument = {"backend": "torch", "methods": ["deepspeed_nvme"]}
    ranks = on_ranks("torch", 2, "conformance.methods:check", argument, timeout=1700, limit=1700)
    for rank in ranks:
        for run in rank["deepspeed_nvme"]["runs"]:
            assert run["losses"] < 2e-5
            assert run["weights"] < 2e-5


@pytest.mark.slow("Horovod has no wheel and compiles for ten minutes; it sums as DDP does")
@pytest.mark.timeout(3000)
def test_horovod(tmp_path: Path) -> None:
    built = tmp_path / "horovod"
    script = ["bash", str(ROOT / "benchmarks" / "horovod.sh"), str(built)]
    environ = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(script, env=environ, check=True, timeout=2400)
    python = built / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True, timeout=400)
    arms = "".join(ARM.format(name) for name in ("horovod", "horovod_fp16"))
    (tmp_path / "built.toml").write_text(RUN + arms)
    words = ["-m", "dualml", "run", "built.toml", "--backend", "torch", "--out", "out"]
    subprocess.run([python, *words], cwd=tmp_path, check=False, timeout=500)
    trials = json.loads((tmp_path / "out" / "run.json").read_text())["trials"]
    assert [t["status"] for t in trials] == ["ok"] * 3
    parity = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert {s["arm"]: s["verdict"] for s in parity["serial"]}["horovod"] == "equal"
