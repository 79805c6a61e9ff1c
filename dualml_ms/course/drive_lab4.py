"""Run a student's split of a model in MindSpore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_attribute, read_number, read_tensor
from dualml.course.tally import ALLOWED
from dualml_ms.course.convert import copy_to_array

Arrays = Mapping[str, Any]


class Linear(nn.Cell):
    """Linear layer x·Wᵀ + b, followed by softsign if ``bent``."""

    def __init__(self, arrays: Arrays, bent: bool) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(arrays["weight"]), name="weight")
        self.bias = ms.Parameter(ms.Tensor(arrays["bias"]), name="bias")
        self.bent = bent

    def construct(self, x):
        """Return the outputs of the layer, one row for each row of ``x``."""
        z = ops.matmul(x, self.weight.T) + self.bias
        return z / (1 + ops.abs(z)) if self.bent else z


def make_stage(arrays: Arrays, lr: float, rank: int) -> tuple[Any, Any]:
    """Return a rank's stage, with softsign on rank 0, and a function that takes its gradients and
    makes one step of gradient descent."""
    stage = Linear(arrays, rank == 0)

    def optimizer(gradients: Any) -> None:
        for p, g in zip(stage.trainable_params(), gradients, strict=True):
            ops.assign_sub(p, lr * g)

    return stage, optimizer


def parameters(stage: Any) -> Any:
    """Return the name and the parameter of weight and bias of a stage."""
    return [("weight", stage.weight), ("bias", stage.bias)]


def mean_squares(outputs: Any, y: Any) -> Any:
    """Return the mean of (outputs − y)² over all entries, a scalar tensor."""
    return ((outputs - y) ** 2).mean()


def stages(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's pipeline; ``3/weight``, ``3/bias`` of this rank's stage after update 3,
    ``3/loss`` on the last rank."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    stage, optimizer = make_stage(arrays, options["lr"], comm.rank)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = (ms.Tensor(arrays[f"{n}/{step}"]) if f"{n}/{step}" in arrays else None for n in "xy")
        given = RestrictedCommunicator(comm, ALLOWED["stages"])
        loss = getattr(module, target)(
            given, stage, mean_squares, optimizer, x, y, options["micro_batches"], options["width"]
        )
        if comm.rank == 1:
            out[f"{step}/loss"] = np.asarray(read_number(loss, target))
        out |= {f"{step}/{n}": t.asnumpy().copy() for n, t in parameters(stage)}
    return out


def layer(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's layer forward and backward; return ``y`` and the gradients ``x``, ``weight``,
    ``bias``."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    watched = RestrictedCommunicator(comm, ALLOWED["layer"])
    w, b, x, g = (ms.Tensor(arrays[n]) for n in ("w", "b", "x", "g"))
    made = getattr(module, target)(watched, w, b)
    y = made.forward(x)
    comm.mark()
    back, backward = made.backward(g), f"{target}.backward"
    return {
        "y": read_tensor(y, copy_to_array, f"{target}.forward"),
        "x": read_tensor(back, copy_to_array, backward),
        "weight": read_attribute(made, "weight_grad", copy_to_array, backward),
        "bias": read_attribute(made, "bias_grad", copy_to_array, backward),
    }
