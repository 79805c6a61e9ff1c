"""Models that torch.jit has compiled are recorded by their outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dualml.parity.models.judge import JudgingSettings, judge_traces
from dualml.parity.models.trace import Trace
from dualml_torch.models import losses, step
from dualml_torch.parity.recorder import Recorder

X, Y = torch.ones(4, 6) + torch.arange(6) / 6, torch.tensor([0, 1, 2, 0])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc1(x)
        y = torch.relu(y) if bool(x.mean() > 0) else torch.tanh(y)
        return self.fc2(y)


def record(model: Any) -> Trace:
    recorder = Recorder(model, None, torch.optim.SGD(model.parameters(), lr=0.1), steps=2)
    one = step(model, losses()["cross_entropy"], recorder.optimizer, recorder)
    for _ in range(2):
        recorder.run(one, X, Y)
    return recorder.trace


@pytest.mark.parametrize(
    ("compiled", "verdict"),
    [
        (lambda: torch.jit.script(Net()), "equal"),
        (lambda: torch.jit.trace(Net(), X), "equal"),
        (lambda: torch.jit.trace(Net(), -X), "different"),
    ],
    ids=["scripted", "traced", "traced along the other branch"],
)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_compiled_model_is_compared(compiled: Any, verdict: str) -> None:
    a, b = record(Net()), record(compiled())
    assert not b.raised
    found = judge_traces(a, b, JudgingSettings(sides=("A", "B")))
    assert found.verdict == verdict, found.paragraph()
