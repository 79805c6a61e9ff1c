"""Run a student's checkpoints in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.drive_checkpoint import run_checkpoint

Arrays = Mapping[str, Any]
WEIGHTS = ("weight", "bias")


class Net(torch.nn.Module):
    """The linear model (x − shift)·W + b; ``shift`` is a buffer that follows the mean of x."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        super().__init__()
        for name in WEIGHTS:
            p = torch.nn.Parameter(torch.from_numpy(arrays[f"{prefix}/{name}"].copy()))
            self.register_parameter(name, p)
        self.register_buffer("shift", torch.from_numpy(arrays[f"{prefix}/shift"].copy()))


class MomentumDescent(torch.optim.Optimizer):
    """Gradient descent with momentum: v ← μ·v + g, θ ← θ − η·v."""

    def __init__(self, params: Any, lr: float, momentum: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update each parameter that has a gradient in place; ``closure`` is ignored."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    v = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                    v.mul_(group["momentum"]).add_(p.grad)
                    p.sub_(group["lr"] * v)


class Training:
    """One rank's training: samples of its own, drawn by a generator of its own.

    Args:
        prefix: ``start`` or ``fresh``, the arrays to begin with.
    """

    def __init__(self, arrays: Arrays, options: Mapping[str, Any], prefix: str, seed: int) -> None:
        h = options["hyper"]
        self.model = Net(arrays, prefix)
        self.optimizer = MomentumDescent(self.model.parameters(), h["lr"], h["momentum"])
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self.x, self.y = (torch.from_numpy(arrays[n].copy()) for n in "xy")
        self.batch = options["batch"]

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Draw the numbers of a batch's samples, (batch,), from ``generator``, which is
        advanced."""
        return torch.randint(0, len(self.x), (self.batch,), generator=generator)

    @torch.no_grad()
    def update(self, comm: Any, epoch: int) -> None:
        """Make one update with the mean gradient of all ranks, on samples that are drawn and
        shifted by ``epoch``; move the buffer towards the samples' mean. All ranks call it."""
        at = (self.draw(self.generator) + epoch) % len(self.x)
        w, b = (self.model.get_parameter(n) for n in WEIGHTS)
        shift = self.model.get_buffer("shift")
        x = self.x[at] - shift
        off = 2 * (x @ w + b - self.y[at]) / (self.batch * self.y.shape[1])
        w.grad = comm.all_reduce(x.T @ off) / comm.size
        b.grad = comm.all_reduce(off.sum(0)) / comm.size
        mean = comm.all_reduce(self.x[at].mean(0)) / comm.size
        self.optimizer.step()
        shift.mul_(0.75).add_(0.25 * mean)

    def lower_rate(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        for group in self.optimizer.param_groups:
            group["lr"] *= factor

    def values(self) -> dict[str, Any]:
        """Return copies of parameters and buffer by name."""
        return {n: t.detach().numpy().copy() for n, t in self.model.state_dict().items()}

    def state(self) -> dict[str, Any]:
        """Return copies of the `values`, the momentum (``momentum/NAME``), the learning rate
        (``rate``), and the numbers of the samples of the next four batches (``draws``); the
        generator does not advance."""
        copied = torch.Generator()
        copied.set_state(self.generator.get_state())
        params = self.optimizer.param_groups[0]["params"]
        states = [self.optimizer.state.get(p, {}) for p in params]
        moments = [
            s.get("momentum_buffer", torch.zeros_like(p))
            for s, p in zip(states, params, strict=True)
        ]
        return {
            **self.values(),
            **{
                f"momentum/{n}": v.detach().numpy().copy()
                for n, v in zip(WEIGHTS, moments, strict=True)
            },
            "rate": np.asarray(float(self.optimizer.param_groups[0]["lr"])),
            "draws": np.concatenate([self.draw(copied).numpy() for _ in range(4)]),
        }


def checkpoint(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Save and load a training by the student's class ``target`` of ``module`` for checkpoint
    files; the result is that of `dualml.course.drive_checkpoint.run_checkpoint`."""

    def make_checkpoint(given: Any, path: str, training: Training) -> Any:
        parts = training.model, training.optimizer, training.generator
        return getattr(module, target)(given, path, *parts)

    def gather(a: Any) -> list[Any]:
        return [x.numpy() for x in comm.all_gather(torch.from_numpy(a))]

    return run_checkpoint(
        lambda prefix, seed: Training(arrays, options, prefix, seed),
        make_checkpoint,
        options,
        comm,
        gather,
    )
