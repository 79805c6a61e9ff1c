"""A PyTorch recorder calls a step again: schedules, averages and scalers must not notice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from dualml.parity.models.judge import judge_traces
from dualml.parity.models.trace import Trace
from dualml_torch.record import Recorder

STEPS = 4
DRAW = np.random.default_rng(0)
X = torch.from_numpy(DRAW.normal(size=(STEPS, 8, 6)).astype(np.float32))
Y = torch.from_numpy(DRAW.integers(0, 3, (STEPS, 8)))


class Script:
    """A training script whose warm-up takes 8 calls of the schedule.

    Args:
        folder: of the trace.
        calls: of the schedule, after each step.
        inside: whether the function of a step calls it.
        draws: of the recorder; None: the script trains without one.
    """

    def __init__(self, folder: Path, calls: int = 1, inside: bool = False, draws: Any = 3) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = LambdaLR(self.optimizer, lambda n: min(1.0, (n + 1) / 8))
        self.average = AveragedModel(self.model)
        self.calls, self.inside, self.recorder = calls, inside, None
        if draws is not None:
            self.recorder = Recorder(self.model, folder, self.optimizer, steps=STEPS, draws=draws)
        average, advance = self.average, self.advance

        def step(x: torch.Tensor, y: torch.Tensor) -> None:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            if self.recorder is not None:
                self.recorder.saw(loss=loss)
            self.optimizer.step()
            if inside:
                average.update_parameters(self.model)
                advance()

        for x, y in zip(X, Y, strict=True):
            if self.recorder is None:
                step(x, y)
            else:
                self.recorder.run(step, x, y)
            if not inside:
                advance()

    def advance(self) -> None:
        for _ in range(self.calls):
            self.schedule.step()

    @property
    def trace(self) -> Trace:
        assert self.recorder is not None
        return self.recorder.trace


@pytest.mark.parametrize("inside", [False, True])
def test_a_schedule_four_times_as_fast_is_different(tmp_path: Path, inside: bool) -> None:
    """Draws train with the rate of the recorded step, so that the rounding stays what it is."""
    usual, fast = (Script(tmp_path / str(n), n, inside).trace for n in (1, 4))
    for trace in (usual, fast):
        assert trace.envelope
        assert max(trace.envelope.values()) < 1e-4
    found = judge_traces(usual, fast)
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.step, found.first.phase) == (2, "update")
    again = judge_traces(usual, Script(tmp_path / "again", 1, inside).trace)
    assert again.equal
    # Nothing is left out.
    assert sum(int(phase["arrays"]) for phase in again.phases.values()) == STEPS * 21


def test_a_recorded_script_ends_where_it_ends_without_a_recorder(tmp_path: Path) -> None:
    alone, recorded = (Script(tmp_path / str(d), 1, True, d) for d in (None, 3))
    assert recorded.schedule.state_dict()["last_epoch"] == STEPS
    assert recorded.schedule.get_last_lr() == alone.schedule.get_last_lr()
    for name in ("model", "average"):
        mine, theirs = (getattr(one, name).state_dict() for one in (recorded, alone))
        assert all(torch.equal(value, theirs[key]) for key, value in mine.items())


def test_weights_that_a_script_changes_between_steps_are_changed_in_draws(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(model, tmp_path, optimizer, steps=3)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()

    for x in X[:3]:
        recorder.run(step, x)
        with torch.no_grad():
            model.weight.mul_(0.5)
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4


class Average(nn.Module):
    """An average of the weights whose share of the new ones depends on a counter of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = nn.Linear(6, 3).requires_grad_(False)
        self.module.load_state_dict(model.state_dict())
        self.updates = 0

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        for mean, new in zip(self.module.parameters(), model.parameters(), strict=True):
            mean.lerp_(new, 1 / (1 + self.updates))


def test_a_counter_around_a_recorded_average_is_put_back(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    average = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    both = nn.ModuleDict({"model": model, "average": average.module})
    recorder = Recorder(both, tmp_path, optimizer, steps=3)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()
        average.update(model)

    for x in X[:3]:
        recorder.run(step, x)
    assert average.updates == 3
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4


class Counting(nn.Linear):
    """A layer whose output depends on how often it was called."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x) * (1 + 1 / self.calls)


def test_a_counter_inside_of_the_model_is_put_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Counting(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(model, tmp_path, optimizer, steps=3)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        recorder.saw(loss=loss)
        optimizer.step()

    for x in X[:3]:
        recorder.run(step, x)
    assert model[0].calls == 3
    assert recorder.trace.random is None
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4


def test_momentum_in_a_list_of_the_script_is_put_back(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    momentum = [torch.zeros_like(p) for p in model.parameters()]
    recorder = Recorder(model, tmp_path, steps=3)

    def step(x: torch.Tensor) -> None:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        recorder.saw(loss=loss)
        with torch.no_grad():
            for p, m in zip(model.parameters(), momentum, strict=True):
                m.mul_(0.9).add_(p.grad)
                p.sub_(m, alpha=0.1)

    for x in X[:3]:
        recorder.run(step, x)
    assert max((recorder.trace.envelope or {"": 1.0}).values()) < 1e-4
