"""Trials are independent: the order of the arms changes no byte of a result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conformance.backends import require
from running import dualml, losses, one_core

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

HEAD = """
name = "order"
model = "lenet"
title = { en = "Order", zh = "次序" }
data = { name = "digits", train = 200, test = 40 }
evaluation = { train_samples = 40, per_epoch = 1, early = [] }
parity = { draws = 2, horizon = 3 }
"""
ARMS = {
    "adam": '[arms.adam]\noptimizer = { name = "adam", lr = 1e-3 }\nupdates = 12\n',
    "sgd": '[arms.sgd]\noptimizer = { name = "sgd", lr = 0.05, momentum = 0.9 }\nupdates = 12\n',
}
FILES = ("weights.safetensors", "trace.safetensors", "envelope.json")


@pytest.mark.parametrize("backend", ["torch", "mindspore"])
def test_the_order_of_arms_changes_no_byte(backend: str, tmp_path: Path) -> None:
    require(backend)
    for order in (("adam", "sgd"), ("sgd", "adam")):
        file, out = tmp_path / f"{order[0]}.toml", tmp_path / order[0]
        file.write_text(HEAD + "".join(ARMS[name] for name in order), "utf-8")
        words = ["run", file, "--backend", backend, "--out", out, "--no-report", "--threads", 1]
        with one_core():
            done = subprocess.run(
                dualml(*words), capture_output=True, text=True, check=False, timeout=200
            )
        assert done.returncode == 0, done.stderr
    for arm in ARMS:
        places = [tmp_path / first / "trials" / arm / backend / "seed0" for first in ARMS]
        for name in FILES:
            first, second = ((place / name).read_bytes() for place in places)
            assert first == second, (arm, name)
        assert losses(tmp_path / "adam", arm, backend) == losses(tmp_path / "sgd", arm, backend)
