"""Whole patches: a wrong port, its causes undone, and the comparison that proves it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dualml.parity import compare

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("torch", "mindspore"))),
        reason="both frameworks are needed",
    ),
]
TORCH = """import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8, eps=1e-3)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        h = self.norm(F.relu(self.first(x)))
        return torch.softmax(self.last(h), dim=-1)
"""
MINDSPORE = """from mindspore import nn, ops

from layers import make_norm


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(6, 8)  # as there
        self.norm = make_norm(8)
        self.last = nn.Dense(8, 3)

    def construct(self, x):
        h = self.norm(ops.relu(self.first(x)))
        return ops.softmax(self.last(h), axis=0)
"""
LAYERS = """from mindspore import nn


def make_norm(width):
    return nn.LayerNorm((width,), epsilon=1e-5)
"""


@pytest.fixture
def nets(tmp_path: Path) -> tuple[str, str]:
    """Return a model and its port, which has two mistakes, in read-only files."""
    texts = {"net_torch.py": TORCH, "net_ms.py": MINDSPORE, "layers.py": LAYERS}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o444)
    return f"{tmp_path / 'net_torch.py'}:Net", f"{tmp_path / 'net_ms.py'}:Net"


def test_two_mistakes_in_two_files_are_undone_and_nothing_is_written(
    nets: tuple[str, str], tmp_path: Path
) -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    found = compare(*nets, x, patch=True)
    assert found.verdict == "different"
    patch = found.patch
    assert patch is not None
    assert patch["verdict"] == "equal", found.paragraph()
    lines = [line for line in patch["diff"].splitlines() if line[:1] in "+-"]
    assert [line.strip("+- ") for line in lines if line[:3] not in ("+++", "---")] == [
        "return nn.LayerNorm((width,), epsilon=1e-5)",
        "return nn.LayerNorm((width,), epsilon=0.001)",
        "return ops.softmax(self.last(h), axis=0)",
        "return ops.softmax(self.last(h), axis=-1)",
    ]
    assert "qual with this patch" in found.paragraph()
    assert found.paragraph("zh").count("补丁")
    assert (tmp_path / "net_ms.py").read_text() == MINDSPORE
    assert (tmp_path / "layers.py").read_text() == LAYERS
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix) == [
        "layers.py",
        "net_ms.py",
        "net_torch.py",
    ]


def test_a_right_port_needs_no_patch_and_no_field_without_the_option(
    nets: tuple[str, str], tmp_path: Path
) -> None:
    right = tmp_path / "right_ms.py"
    right.write_text(MINDSPORE.replace("make_norm(8)", "nn.LayerNorm((8,), epsilon=1e-3)"))
    right.write_text(right.read_text().replace("axis=0", "axis=-1"))
    command = [sys.executable, "-P", "-m", "dualml", "compare", nets[0], f"{right}:Net"]
    shape = ["--shape", "4,6", "--json"]
    plain, asked = (
        json.loads(subprocess.run([*command, *shape, *more], text=True, capture_output=True).stdout)
        for more in ([], ["--patch"])
    )
    assert "patch" not in plain
    assert asked["patch"]["reason"] == "not_needed"
    assert asked["patch"]["diff"] == ""


def test_a_port_that_is_the_first_side_is_patched(tmp_path: Path) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "net.py").write_text(TORCH)
    port = tmp_path / "mine.py"
    wrong = TORCH.replace(
        "torch.softmax(self.last(h), dim=-1)", "torch.softmax(self.last(h), dim=0)"
    )
    assert wrong != TORCH
    port.write_text(wrong)
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    found = compare(f"{port}:Net", f"{package / 'net.py'}:Net", x, patch=True)
    assert found.verdict == "different"
    assert found.patch is not None
    assert found.patch["verdict"] == "equal", found.paragraph()
    assert "+++ b/mine.py" in found.patch["diff"]
    assert "dim=-1" in found.patch["diff"].split("\n+", 2)[-1]
    assert "mine.py" in found.paragraph()
    assert port.read_text() == wrong
