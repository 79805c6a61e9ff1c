"""Run a student's MindSpore code of Lab 3: samplers in a dataset, data parallel updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

from dualml.course.drive_lab3 import run_samplers
from dualml.course.returned import read_number

Arrays = Mapping[str, Any]
WEIGHTS = ("w1", "b1", "w2", "b2")


class Numbers:
    """A data source of n samples, each of which is its own index."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, number: Any) -> Any:
        return np.int64(number)


def sampler(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's sampler in a MindSpore dataset; the result is that of
    `dualml.course.drive_lab3.run_samplers`."""
    h = options["hyper"]
    source = Numbers(h["n"])

    def make_sampler(rank: int, seed: int) -> Any:
        return getattr(module, target)(h["n"], h["ranks"], rank, seed, kind=h["kind"])

    def load(sampler: Any) -> Any:
        made = ds.GeneratorDataset(source, ["x"], sampler=sampler, python_multiprocessing=False)
        batches = made.batch(options["batch"])
        rows = batches.create_dict_iterator(num_epochs=1, output_numpy=True)
        return np.concatenate([row["x"] for row in rows] or [np.zeros(0, np.int64)])

    return run_samplers(make_sampler, load, options)


class Net(nn.Cell):
    """The network (x − shift) → z / (1 + |z|) → outputs; ``shift`` is a parameter that is not
    trained."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        w1, b1, w2, b2 = (
            ms.Parameter(ms.Tensor(arrays[f"p/{name}"].copy()), name=name) for name in WEIGHTS
        )
        self.w1, self.b1, self.w2, self.b2 = w1, b1, w2, b2
        shift = ms.Tensor(arrays["p/shift"].copy())
        self.shift = ms.Parameter(shift, name="shift", requires_grad=False)

    def construct(self, x):
        """Return the outputs of the network, one row for each row of ``x``."""
        z = ops.matmul(x - self.shift, self.w1) + self.b1
        return ops.matmul(z / (1 + ops.abs(z)), self.w2) + self.b2

    def values(self, prefix: str = "") -> dict[str, Any]:
        """Return copies of all parameters by name, with ``prefix`` before it."""
        return {f"{prefix}{p.name}": p.asnumpy().copy() for p in self.get_parameters()}


class Descent:
    """Gradient descent θ ← θ − η·g, or with ``adaptive`` AdaGrad: θ ← θ − η·g/(√Σg² + ε); called
    with gradients."""

    def __init__(self, params: Any, lr: float, adaptive: bool, eps: float) -> None:
        self.params, self.lr, self.adaptive, self.eps = list(params), lr, adaptive, eps
        self.sums = [ops.zeros_like(p) for p in self.params]

    def __call__(self, gradients: Any) -> None:
        for i, (p, g) in enumerate(zip(self.params, gradients, strict=True)):
            if self.adaptive:
                self.sums[i] = self.sums[i] + g * g
                g = g / (ops.sqrt(self.sums[i]) + self.eps)
            ops.assign_sub(p, self.lr * g)


def same_start(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's ``same_start``; return all parameters after it, and ``kept``: 1 if the
    trained ones are still the same objects, else 0."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net(arrays)
    before = list(net.trainable_params())
    getattr(module, target)(comm, net)
    after = list(net.trainable_params())
    kept = len(before) == len(after) and all(
        a is b and b.requires_grad for a, b in zip(before, after, strict=True)
    )
    return {**net.values(), "kept": np.asarray(float(kept))}


def train_steps(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's training steps; ``3/w1`` is parameter w1 after update 3, ``3/loss`` the loss
    it returned, with the option ``loss``; ``3/x`` and ``3/y`` are the batch after the update."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    h, net = options["hyper"], Net(arrays)
    optimizer = Descent(net.trainable_params(), h["lr"], h["adaptive"], h["eps"])
    loss_fn = nn.MSELoss()
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = ms.Tensor(arrays[f"x/{step}"]), ms.Tensor(arrays[f"y/{step}"])
        loss = getattr(module, target)(comm, net, loss_fn, optimizer, x, y)
        out |= {f"{step}/x": x.asnumpy().copy(), f"{step}/y": y.asnumpy().copy()}
        if options["loss"]:
            out[f"{step}/loss"] = np.asarray(read_number(loss, target))
        out |= {k: v for k, v in net.values(f"{step}/").items() if not k.endswith("shift")}
    return out
