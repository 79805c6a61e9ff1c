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


def make_stage(arrays: Arrays, options: Mapping[str, Any], rank: int) -> tuple[Any, Any]:
    """Return a rank's stage, with softsign on rank 0, and a function that takes its gradients and
    makes one step of gradient descent with momentum: v ← μ·v + g, θ ← θ − η·v."""
    stage = Linear(arrays, rank == 0)
    own = stage.trainable_params()
    buffers = [ops.zeros_like(p) for p in own]

    def optimizer(gradients: Any) -> None:
        gradients = list(gradients)
        if len(gradients) != len(own):
            raise ValueError(
                f"the optimizer takes {len(own)} gradients, of {[p.name for p in own]}; "
                f"{len(gradients)} were given"
            )
        for i, (p, g) in enumerate(zip(own, gradients, strict=True)):
            buffers[i] = options.get("momentum", 0.0) * buffers[i] + g
            ops.assign_sub(p, options["lr"] * buffers[i])

    return stage, optimizer


def parameters(stage: Any) -> Any:
    """Return a list of pairs, name and parameter, of the weight and the bias of a stage."""
    return [("weight", stage.weight), ("bias", stage.bias)]


def mean_squares(outputs: Any, y: Any) -> Any:
    """Return the mean of (outputs − y)² over all entries, a scalar tensor."""
    return ((outputs - y) ** 2).mean()


def changed_inputs(arrays: Arrays, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return as ``changed/NAME`` the tensors that a student's function got and that now differ from
    the input ``arrays``."""
    after = {name: t.asnumpy().copy() for name, t in given.items()}
    return {
        f"changed/{name}": a for name, a in after.items() if not np.array_equal(a, arrays[name])
    }


def stages(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's pipeline; return ``3/weight``, ``3/bias`` of this rank's stage after update
    3, and ``3/loss``, what the student's step returned; if that is None, rank 1 returns ``3/none``
    instead. Tensors that the step changed follow as ``changed/NAME``."""
    # Synchronous: an error is then raised on the line that caused it.
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    stage, optimizer = make_stage(arrays, options, comm.rank)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        names = [f"{n}/{step}" for n in "xy" if f"{n}/{step}" in arrays]
        given = {name: ms.Tensor(arrays[name].copy()) for name in names}
        loss = getattr(module, target)(
            RestrictedCommunicator(comm, ALLOWED["stages"]),
            stage,
            mean_squares,
            optimizer,
            given.get(f"x/{step}"),
            given.get(f"y/{step}"),
            options["micro_batches"],
            options["width"],
        )
        if loss is not None:
            out[f"{step}/loss"] = np.asarray(read_number(loss, target))
        elif comm.rank == 1:
            out[f"{step}/none"] = np.ones(())
        out |= {f"{step}/{n}": t.asnumpy().copy() for n, t in parameters(stage)}
        out |= changed_inputs(arrays, given)
    return out


def layer(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's layer forward and backward; return the output ``y``, the gradients ``x``,
    ``weight``, ``bias``, and tensors that the student's code changed as ``changed/NAME``."""
    ms.set_context(mode=ms.PYNATIVE_MODE, pynative_synchronize=True)
    watched = RestrictedCommunicator(comm, ALLOWED["layer"])
    given = {n: ms.Tensor(arrays[n].copy()) for n in ("w", "b", "x", "g")}
    made = getattr(module, target)(watched, given["w"], given["b"])
    y = made.forward(given["x"])
    comm.mark()
    back, backward = made.backward(given["g"]), f"{target}.backward"
    return {
        "y": read_tensor(y, copy_to_array, f"{target}.forward"),
        "x": read_tensor(back, copy_to_array, backward),
        "weight": read_attribute(made, "weight_grad", copy_to_array, backward),
        "bias": read_attribute(made, "bias_grad", copy_to_array, backward),
        **changed_inputs(arrays, given),
    }
