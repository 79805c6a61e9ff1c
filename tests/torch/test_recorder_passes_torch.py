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


def train_again(folder: Path, *, inverted: bool = False, earlier: int = 0) -> Trace:
    """Record two steps with decay for matrices alone, or inverted, after some earlier steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) == matrices], "weight_decay": w}
        for matrices, w in ((not inverted, 0.1), (inverted, 0.0))
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, eps=1e-6)

    def update(x: torch.Tensor, y: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(earlier):
        update(X[0], Y[0])
    model.load_state_dict(start)
    recorder = Recorder(model, folder, optimizer, steps=2)
    for x, y in zip(X, Y, strict=True):
        recorder.run(update, x, y)
    return recorder.trace


def test_settings_and_start_of_an_optimizer_are_recorded_and_said(tmp_path: Path) -> None:
    right = train_again(tmp_path / "right")
    assert [one.names for one in right.groups] == [NAMES[::2], NAMES[1::2]]
    assert right.groups[0].settings["weight_decay"] == 0.1
    assert right.groups[1].settings["eps"] == 1e-6
    assert right.start is not None
    assert (right.start.updates, right.start.slots) == (0, {})
    train_again(tmp_path / "inverted", inverted=True)
    found = compare_traces(tmp_path / "right", tmp_path / "inverted")
    assert found.notes[0].key == "ranks_exchanged_settings"
    resumed = train_again(tmp_path / "resumed", earlier=3)
    assert resumed.start is not None
    assert (resumed.start.updates, list(resumed.start.slots)) == (3, ["exp_avg", "exp_avg_sq"])
    found = compare_traces(tmp_path / "right", tmp_path / "resumed")
    assert found.notes[0].key == "ranks_starts_apart"


@pytest.mark.parametrize("early", [False, True])
def test_clipping_while_the_loss_is_scaled(tmp_path: Path, early: bool) -> None:
    def scaled(folder: Path, unscales: bool) -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
        recorder = Recorder(model, folder, optimizer, steps=2)

        def update(x: torch.Tensor, y: torch.Tensor) -> None:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            recorder.saw(loss=loss)
            if unscales:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()

        for x, y in zip(X, Y, strict=True):
            recorder.run(update, x, y)

    scaled(tmp_path / "early", unscales=False)
    if early:
        train(tmp_path / "right", norm=0.05)
    else:
        scaled(tmp_path / "right", unscales=True)
    found = compare_traces(tmp_path / "right", tmp_path / "early")
    assert found.notes[0].key == "ranks_clipped_while_scaled"
    assert found.notes[0].values["scale"] == "16384"
