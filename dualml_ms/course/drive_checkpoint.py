"""Run a student's checkpoints in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml.course.drive_checkpoint import run_checkpoint

Arrays = Mapping[str, Any]
WEIGHTS = ("weight", "bias")


class Net(nn.Cell):
    """The linear model (x − shift)·W + b; ``shift`` is a parameter that is not trained and follows
    the mean of x."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        super().__init__()
        self.weight, self.bias, self.shift = (
            ms.Parameter(ms.Tensor(arrays[f"{prefix}/{n}"]), name=n, requires_grad=n != "shift")
            for n in (*WEIGHTS, "shift")
        )


class MomentumDescent(nn.Cell):
    """Gradient descent with momentum: v ← μ·v + g, θ ← θ − η·v; called with gradients."""

    def __init__(self, params: Any, lr: float, momentum: float) -> None:
        super().__init__()
        trained = list(params)
        self.trained = lambda: trained  # the weights are no parameters of the optimizer
        self.momentum = momentum
        rate = ms.Tensor(np.asarray(lr, np.float64))
        self.learning_rate = ms.Parameter(rate, name="learning_rate", requires_grad=False)
        self.moments = ms.ParameterTuple(
            ms.Parameter(ms.ops.zeros_like(p), name=f"moment.{p.name}", requires_grad=False)
            for p in trained
        )

    def construct(self, gradients):
        """Update each parameter and its momentum in place, with one gradient per parameter."""
        rate = np.float32(self.learning_rate.asnumpy())
        for p, v, g in zip(self.trained(), self.moments, gradients, strict=True):
            moved = np.float32(self.momentum) * v.asnumpy() + g
            v.set_data(ms.Tensor(moved))
            p.set_data(ms.Tensor(p.asnumpy() - rate * moved))


class Training:
    """One rank's training: samples of its own, drawn by a generator of its own.

    Args:
        prefix: ``start`` or ``fresh``, the arrays to begin with.
    """

    def __init__(self, arrays: Arrays, options: Mapping[str, Any], prefix: str, seed: int) -> None:
        h = options["hyper"]
        self.net = Net(arrays, prefix)
        self.optimizer = MomentumDescent(self.net.trainable_params(), h["lr"], h["momentum"])
        self.generator = np.random.RandomState(seed)
        self.x, self.y = arrays["x"], arrays["y"]
        self.batch = options["batch"]

    def draw(self, generator: np.random.RandomState) -> Any:
        """Draw the indices of one batch's samples, int64, from ``generator``, which advances."""
        raw = generator.randint(0, 2**32, self.batch, dtype=np.uint32)
        return (raw % len(self.x)).astype(np.int64)

    def update(self, comm: Any, epoch: int) -> None:
        """Make one update with the mean gradient of all ranks, which all call it, and move
        ``shift`` a quarter of the way to the mean of their samples. ``epoch`` is added to the drawn
        sample numbers."""
        at = (self.draw(self.generator) + epoch) % len(self.x)
        v = self.values()
        x = self.x[at] - v["shift"]
        off = 2 * (x @ v["weight"] + v["bias"] - self.y[at]) / np.float32(self.y[at].size)
        own = x.T @ off, off.sum(0), self.x[at].mean(0)
        size = np.float32(comm.size)
        *mean, seen = (comm.all_reduce(ms.Tensor(g)).asnumpy() / size for g in own)
        self.optimizer.construct(mean)
        shift = np.float32(0.75) * v["shift"] + np.float32(0.25) * seen
        self.net.shift.set_data(ms.Tensor(shift))

    def lower_rate(self, factor: float) -> None:
        """Multiply the learning rate by a factor."""
        rate = self.optimizer.learning_rate
        rate.set_data(ms.Tensor(rate.asnumpy() * factor))

    def values(self) -> dict[str, Any]:
        """Return copies of ``weight``, ``bias`` and ``shift`` by name."""
        return {n: getattr(self.net, n).asnumpy().copy() for n in (*WEIGHTS, "shift")}

    def state(self) -> dict[str, Any]:
        """Return copies of the `values`, the momentum (``momentum/NAME``), the learning rate
        (``rate``), and the numbers of the samples of the next four batches (``draws``); the
        generator does not advance."""
        copied = deepcopy(self.generator)
        moments = zip(WEIGHTS, self.optimizer.moments, strict=True)
        return {
            **self.values(),
            **{f"momentum/{n}": v.asnumpy().copy() for n, v in moments},
            "rate": self.optimizer.learning_rate.asnumpy().copy(),
            "draws": np.concatenate([self.draw(copied) for _ in range(4)]),
        }


def checkpoint(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Save and load a training by a student's class for checkpoint files; the result is that of
    `dualml.course.drive_checkpoint.run_checkpoint`."""
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def make_checkpoint(given: Any, path: str, training: Training) -> Any:
        parts = training.net, training.optimizer, training.generator
        return getattr(module, target)(given, path, *parts)

    def gather(a: Any) -> list[Any]:
        return [x.asnumpy() for x in comm.all_gather(ms.Tensor(a))]

    return run_checkpoint(
        lambda prefix, seed: Training(arrays, options, prefix, seed),
        make_checkpoint,
        options,
        comm,
        gather,
    )
