"""A small model with parts that people often get wrong, and the search for a cause between two
models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.explanation import Explanation
from dualml.parity.causes.graph_host import GraphHost
from dualml.parity.causes.inquiry import Budget
from dualml.parity.causes.search import search
from dualml.parity.models.judge import JudgingSettings
from dualml.parity.models.trace import Trace
from dualml_torch.models import losses, step
from dualml_torch.parity.causes.explore import Explorer, MutatingRecorder
from dualml_torch.parity.recorder import Recorder

JUDGING = JudgingSettings(margin=10.0, sides=("A", "B"))

Named = tuple[str, str, Any, Any]


class Net(nn.Module):
    """A block of typical parts; each mistake overrides one method or setting."""

    eps, scale, slope = 1e-5, 0.5, 0.1

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def normed(self, x: Any) -> Any:
        return F.layer_norm(x, (6,), self.norm.weight, self.norm.bias, self.eps)

    def mix(self, x: Any) -> Any:
        return torch.softmax((x @ x.transpose(1, 2)) * self.scale, -1) @ x

    def added(self, x: Any, y: Any) -> Any:
        return x + y

    def first_layer(self, x: Any) -> Any:
        return self.inner(x)

    def forward(self, x: Any) -> Any:
        y = self.added(x, F.leaky_relu(self.first_layer(x), self.slope))
        y = self.added(y, self.other(self.mix(self.normed(y))))
        return self.head(y[:, 0])


def inputs() -> list[torch.Tensor]:
    rng = np.random.default_rng(3)
    return [
        torch.from_numpy(rng.standard_normal((4, 6, 6)).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 3, 4)),
    ]


def trace(kind: type[nn.Module], optimizer: Callable[..., Any], steps: int) -> Trace:
    torch.manual_seed(0)
    model = kind()
    recorder = Recorder(model, None, optimizer(model.parameters()), steps=steps)
    one = step(model, losses()["cross_entropy"], recorder.optimizer, recorder)
    for _ in range(steps):
        recorder.run(one, *inputs())
    return recorder.trace


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def searched(
    kind: type[nn.Module],
    theirs: Callable[..., Any] = sgd,
    steps: int = 2,
    base: type[nn.Module] = Net,
    ours: Callable[..., Any] = sgd,
    folder: Path | None = None,
) -> Explanation:
    a, b = trace(base, ours, steps), trace(kind, theirs, steps)
    torch.manual_seed(0)
    model = base()
    recorder = MutatingRecorder(model, None, ours(model.parameters()), steps=steps, draws=0)
    loss = losses()["cross_entropy"]
    make = lambda r: step(model, loss, r.optimizer, r)  # noqa: E731
    return explained(a, b, Explorer(recorder, make, inputs(), steps, folder))


def explained(a: Trace, b: Trace, explorer: Explorer) -> Explanation:
    host = GraphHost(a, b, explorer, JUDGING)
    return search(host, Budget(60.0, joint=True), host.evaluate)[0]


def mutation_keys(found: Explanation) -> list[Named]:
    """Return kind, action, argument and value of the first cause's mutations."""
    return [(c.kind, c.action, c.argument, c.value) for c in found.causes[0].alterations]
