"""A PyTorch recorder takes the gradients of each backward pass, where a step has several."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from torch import nn

from dualml.parity.models.run import compare_traces
from dualml.parity.models.trace import Trace
from dualml_torch.record import Recorder

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(2, 8, 6, generator=DRAW)
Y = torch.randint(0, 3, (2, 8), generator=DRAW)
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def train(folder: Path, parts: int = 1, *, clears: bool = False, norm: float = 0.0) -> Trace:
    """Record two steps of a small classifier.

    Args:
        parts: micro-batches of a step.
        clears: whether gradients are set to zero before each of them.
        norm: to which gradients are clipped; 0: they are not.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(model, folder, optimizer, steps=2)

    def update(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        total: Any = 0.0
        for part, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            if clears:
                optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(part), labels) / parts
            loss.backward()
            total = total + loss.detach()
        recorder.saw(loss=total)
        if norm:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()

    for x, y in zip(X, Y, strict=True):
        recorder.run(update, x, y)
    return recorder.trace


def test_one_pass_is_the_gradient_itself(tmp_path: Path) -> None:
    assert train(tmp_path / "whole").names("local", 1) == []
    clipped = train(tmp_path / "clipped", norm=0.1)
    assert sorted(clipped.names("local", 1)) == sorted(NAMES)
    assert compare_traces(tmp_path / "whole", tmp_path / "clipped").verdict == "different"


def test_gradients_cleared_between_micro_batches_are_named(tmp_path: Path) -> None:
    train(tmp_path / "whole")
    right = train(tmp_path / "right", 4)
    expected = {f"{name}{tail}" for name in NAMES for tail in ("", "#2", "#3", "#4")}
    assert set(right.names("local", 2)) == expected
    assert compare_traces(tmp_path / "whole", tmp_path / "right").equal
    train(tmp_path / "cleared", 4, clears=True)
    for other in ("whole", "right"):
        found = compare_traces(tmp_path / other, tmp_path / "cleared")
        assert found.notes[0].key == "ranks_last_micro_batch"


def test_parameters_can_be_saved_in_a_step(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    recorder = Recorder(model, tmp_path / "trace", steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with recorder.step(X[0]):
            model(X[0]).sum().backward()
            torch.save(list(model.parameters()), tmp_path / "list.pt")
    assert not any(one._backward_hooks for one in model.parameters())
