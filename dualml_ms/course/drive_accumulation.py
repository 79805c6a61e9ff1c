"""Run a student's accumulated updates in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.tally import ALLOWED

Arrays = Mapping[str, Any]
WEIGHTS = ("w", "b")


class Net(nn.Cell):
    """A linear layer x → x·w + b."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        self.w, self.b = (
            ms.Parameter(ms.Tensor(arrays[f"p/{name}"].copy()), name=name) for name in WEIGHTS
        )

    def construct(self, x):
        """Return the logits (B, T, C) of positions ``x`` (B, T, F)."""
        return ops.matmul(x, self.w) + self.b


class RecordingDescent:
    """Gradient descent θ ← θ − η·g that records the parameters after each update; called with
    gradients."""

    def __init__(self, net: Net, lr: float) -> None:
        self.params, self.lr, self.updates = net.trainable_params(), lr, 0
        self.record: dict[str, Any] = {}

    def __call__(self, gradients: Any) -> None:
        self.updates += 1
        for p, g in zip(self.params, gradients, strict=True):
            ops.assign_sub(p, self.lr * g)
            self.record[f"{self.updates}/{p.name}"] = p.asnumpy().copy()


def accumulate(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the epochs of a student's training with accumulated gradients; ``3/w`` is parameter w
    after update 3, ``updates`` the number of updates, ``losses`` what was returned for the epochs,
    with the option ``loss``."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    h, net = options["hyper"], Net(arrays)
    optimizer = RecordingDescent(net, h["lr"])
    watched = RestrictedCommunicator(comm, ALLOWED["accumulate"])
    losses: list[float] = []
    for epoch in range(options["epochs"]):
        batches = [
            (ms.Tensor(arrays[f"x/{epoch}/{i}"].copy()), ms.Tensor(arrays[f"y/{epoch}/{i}"].copy()))
            for i in range(1, options["micro_batches"] + 1)
        ]
        found = getattr(module, target)(watched, net, optimizer, batches, h["k"], h["max_norm"])
        if options["loss"]:
            losses += [float(loss) for loss in found]
    out = {"updates": np.asarray(float(optimizer.updates)), **optimizer.record}
    return out | ({"losses": np.array(losses)} if options["loss"] else {})
