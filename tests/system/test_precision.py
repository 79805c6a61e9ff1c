"""Low precisions as a user requests them, on both frameworks and the reference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import dualml

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TOML = """
name = "precision"
model = "mlp"
title = { en = "Precision", zh = "精度" }
[data]
name = "digits"
train = 640
test = 100
[arms.bf16]
optimizer = { name = "sgd", lr = 0.1, momentum = 0.9 }
updates = 60
precision = "bf16"
[arms.fp16]
optimizer = { name = "adam", lr = 0.001 }
updates = 60
batch_size = 8
precision = "fp16"
[arms.native]
world_size = 2
optimizer = { name = "adam", lr = 0.001 }
updates = 60
batch_size = 8
precision = "fp16"
aggregation = { strategy = "native" }
[arms.by-layer]
world_size = 2
split = { micro_batches = 2 }
optimizer = { name = "sgd", lr = 0.1, momentum = 0.9 }
updates = 60
precision = "bf16"
[arms.inside]
world_size = 2
split = { tensor = 2 }
optimizer = { name = "adam", lr = 0.001 }
updates = 60
batch_size = 8
precision = "fp16"
"""


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require("torch")
    require("mindspore")
    folder = tmp_path_factory.mktemp("precision")
    lab, out = folder / "precision.toml", folder / "out"
    lab.write_text(TOML)
    words = ["run", lab, "--backend", "all", "--out", out, "--json", "--no-report"]
    done = subprocess.run(dualml(*words), capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout), "folder": out}


def test_backends_agree_in_both_types(finished_run: dict[str, Any]) -> None:
    verdicts = {(c["arm"], c["a"], c["b"]): c["verdict"] for c in finished_run["parity"]}
    for arm in ("bf16", "fp16", "by-layer", "inside"):
        assert {v for key, v in verdicts.items() if key[0] == arm} == {"equal"}
    assert verdicts["native", "torch", "mindspore"] == "equal"


def test_ranks_agree_with_one(finished_run: dict[str, Any]) -> None:
    serial = json.loads((Path(finished_run["folder"]) / "parity.json").read_text())["serial"]
    found = {(c["arm"], c["against"], c["backend"], c["verdict"]) for c in serial}
    assert found == {
        *(("native", "fp16", name, "equal") for name in ("torch", "mindspore")),
        *(("by-layer", "bf16", name, "equal") for name in ("torch", "mindspore", "numpy")),
        *(("inside", "fp16", name, "equal") for name in ("torch", "mindspore", "numpy")),
    }


def test_it_is_said_how_numbers_are_held(finished_run: dict[str, Any]) -> None:
    how = {(t["arm"], t["backend"]): t["how"].get("precision") for t in finished_run["trials"]}
    assert how["bf16", "torch"] == "native: torch.bfloat16"
    assert how["bf16", "mindspore"].startswith("composed: ")
    assert how["fp16", "mindspore"] == "native: Float16"
    for name in ("torch", "mindspore", "numpy"):
        assert how["by-layer", name] == how["bf16", name]
