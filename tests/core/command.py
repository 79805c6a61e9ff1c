"""The command line from the outside, with the referee as the only backend: no framework needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

TOML = """
name = "tiny"
model = "softmax"
title = { en = "Tiny", zh = "小" }
[data]
name = "digits"
train = 200
test = 50
[arms.gd]
optimizer = { name = "gd", lr = 0.1 }
batch_size = 0
updates = 12
[arms.sgd]
optimizer = { name = "sgd", lr = 0.05, momentum = 0.9 }
batch_size = 20
epochs = 2
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def dualml(
    *words: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dualml", *map(str, words)],
        text=True,
        timeout=120,
        capture_output=True,
        cwd=cwd or tempfile.gettempdir(),  # not the checkout: what is installed is tested
        env={**os.environ, **(env or {})},
        check=False,
    )


def run(lab: object, out: Path, *words: object) -> tuple[int, dict[str, Any]]:
    done = dualml("run", lab, "--backend", "numpy", "--out", out, "--no-report", "--json", *words)
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, json.loads(done.stdout)


def strict(text: str) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)
