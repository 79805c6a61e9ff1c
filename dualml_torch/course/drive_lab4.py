"""Run a student's split of a model in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml.course.restricted import RestrictedCommunicator
from dualml.course.returned import read_attribute, read_number, read_tensor
from dualml.course.tally import ALLOWED
from dualml_torch.course.convert import copy_to_array
from dualml_torch.course.drive_lab3 import Descent

Arrays = Mapping[str, Any]


def make_stage(arrays: Arrays, lr: float, rank: int) -> tuple[Any, Any]:
    """Return a rank's stage, softsign(x·Wᵀ + b) on rank 0 and x·Wᵀ + b on any other, with W and b
    from ``arrays``, and gradient descent for it."""
    out, wide = arrays["weight"].shape
    linear = torch.nn.Linear(wide, out)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(arrays["weight"].copy()))
        linear.bias.copy_(torch.from_numpy(arrays["bias"].copy()))
    stage = torch.nn.Sequential(linear, torch.nn.Softsign()) if rank == 0 else linear
    return stage, Descent(stage.parameters(), lr, adaptive=False, eps=0.0)


def parameters(stage: Any) -> Any:
    """Return the (name, parameter) pairs of a stage in a list, ``weight`` and ``bias``, without
    module names."""
    return [(n.rpartition(".")[2], p) for n, p in stage.named_parameters()]


def stages(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's pipeline of two ranks; return ``3/weight``, ``3/bias``, this rank's
    parameters after update 3, and on rank 1 also ``3/loss``, what the student's step returned."""
    stage, optimizer = make_stage(arrays, options["lr"], comm.rank)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        x, y = (
            torch.from_numpy(arrays[f"{n}/{step}"].copy()) if f"{n}/{step}" in arrays else None
            for n in "xy"
        )
        given = RestrictedCommunicator(comm, ALLOWED["stages"])
        loss = getattr(module, target)(
            given,
            stage,
            torch.nn.functional.mse_loss,
            optimizer,
            x,
            y,
            options["micro_batches"],
            options["width"],
        )
        if comm.rank == 1:
            out[f"{step}/loss"] = np.asarray(read_number(loss, target))
        out |= {f"{step}/{n}": t.detach().numpy().copy() for n, t in parameters(stage)}
    return out


def layer(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's layer forward and backward; return ``y`` and the gradients of ``x``,
    ``weight`` and ``bias`` by these names."""
    watched = RestrictedCommunicator(comm, ALLOWED["layer"])
    w, b, x, g = (torch.from_numpy(arrays[n].copy()) for n in ("w", "b", "x", "g"))
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
