"""Run a student's accumulated updates in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.tally import ALLOWED

Arrays = Mapping[str, Any]
WEIGHTS = ("w", "b")


class Net(torch.nn.Module):
    """A linear layer x → x·w + b."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        for name in WEIGHTS:
            p = torch.nn.Parameter(torch.from_numpy(arrays[f"p/{name}"].copy()))
            self.register_parameter(name, p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, C) of positions ``x`` (B, T, F)."""
        w: dict[str, Any] = dict(self.named_parameters())
        logits: torch.Tensor = x @ w["w"] + w["b"]
        return logits


class RecordingDescent(torch.optim.Optimizer):
    """Gradient descent θ ← θ − η·g that records the parameters after each update."""

    def __init__(self, net: Net, lr: float) -> None:
        super().__init__(net.parameters(), {"lr": lr})
        self.net, self.updates = net, 0
        self.record: dict[str, Any] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update each parameter that has a gradient in place; ``closure`` is ignored."""
        self.updates += 1
        for name, p in self.net.named_parameters():
            if p.grad is not None:
                p -= self.param_groups[0]["lr"] * p.grad
            self.record[f"{self.updates}/{name}"] = p.detach().numpy().copy()


def accumulate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's function ``target`` of ``module`` for some epochs; ``3/w`` is parameter w
    after update 3, ``updates`` the number of updates, ``losses`` what was returned, if the option
    ``loss`` is set.

    Args:
        options: ``epochs``, ``micro_batches`` of an epoch, ``loss``, and ``hyper``: ``lr``, ``k``,
            ``max_norm``.
        arrays: parameters ``p/w`` and ``p/b``, gradients ``stale/w`` that they hold before, and
            ``x/0/1``, ``y/0/1``, micro-batch 1 of epoch 0.
    """
    h, net = options["hyper"], Net(arrays)
    optimizer = RecordingDescent(net, h["lr"])
    for name, p in net.named_parameters():
        if f"stale/{name}" in arrays:
            p.grad = torch.from_numpy(arrays[f"stale/{name}"].copy())
    watched = RestrictedCommunicator(comm, ALLOWED["accumulate"])
    losses: list[float] = []
    for epoch in range(options["epochs"]):
        batches = [
            (
                torch.from_numpy(arrays[f"x/{epoch}/{i}"].copy()),
                torch.from_numpy(arrays[f"y/{epoch}/{i}"].copy()).long(),
            )
            for i in range(1, options["micro_batches"] + 1)
        ]
        found = getattr(module, target)(watched, net, optimizer, batches, h["k"], h["max_norm"])
        if options["loss"]:
            losses += [float(loss) for loss in found]
    out = {"updates": np.asarray(float(optimizer.updates)), **optimizer.record}
    return out | ({"losses": np.array(losses)} if options["loss"] else {})
