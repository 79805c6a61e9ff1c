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

Arrays = Mapping[str, Any]


class MomentumDescent(torch.optim.Optimizer):
    """Gradient descent with momentum: v ← μ·v + g, θ ← θ − η·v."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update each parameter that has a gradient in place; ``closure`` is ignored."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                v.mul_(group["momentum"]).add_(p.grad)
                p -= group["lr"] * v


def make_stage(arrays: Arrays, options: Mapping[str, Any], rank: int) -> tuple[Any, Any]:
    """Return a rank's stage, softsign(x·Wᵀ + b) on rank 0 and x·Wᵀ + b on any other, with W and b
    from ``arrays``, and its optimizer."""
    out, wide = arrays["weight"].shape
    linear = torch.nn.Linear(wide, out)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(arrays["weight"].copy()))
        linear.bias.copy_(torch.from_numpy(arrays["bias"].copy()))
    stage = torch.nn.Sequential(linear, torch.nn.Softsign()) if rank == 0 else linear
    optimizer = MomentumDescent(stage.parameters(), options["lr"], options.get("momentum", 0.0))
    return stage, optimizer


def parameters(stage: Any) -> Any:
    """Return the (name, parameter) pairs of a stage in a list, ``weight`` and ``bias``, without
    module names."""
    return [(n.rpartition(".")[2], p) for n, p in stage.named_parameters()]


def changed_inputs(arrays: Arrays, given: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return as ``changed/NAME`` the tensors that a student's function got and that now differ from
    the input ``arrays``."""
    after = {name: t.detach().numpy().copy() for name, t in given.items()}
    return {
        f"changed/{name}": a for name, a in after.items() if not np.array_equal(a, arrays[name])
    }


def stages(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's pipeline step ``target`` of ``module`` on two ranks; return ``3/weight``,
    ``3/bias``, this rank's parameters after update 3, and ``3/loss``, what the step returned,
    unless it is None: on rank 1 ``3/none`` says so. Arguments that were changed are in
    ``changed/NAME``."""
    stage, optimizer = make_stage(arrays, options, comm.rank)
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        names = [f"{n}/{step}" for n in "xy" if f"{n}/{step}" in arrays]
        given = {name: torch.from_numpy(arrays[name].copy()) for name in names}
        loss = getattr(module, target)(
            RestrictedCommunicator(comm, ALLOWED["stages"]),
            stage,
            torch.nn.functional.mse_loss,
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
        out |= {f"{step}/{n}": t.detach().numpy().copy() for n, t in parameters(stage)}
        out |= changed_inputs(arrays, given)
    return out


def layer(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's layer class ``target`` of ``module`` forward and backward; return ``y`` and
    the gradients of ``x``, ``weight`` and ``bias`` by these names, and arguments that were changed
    as ``changed/NAME``. ``arrays``: ``w``, ``b``, ``x``, and ``g``, the gradient of y."""
    watched = RestrictedCommunicator(comm, ALLOWED["layer"])
    given = {n: torch.from_numpy(arrays[n].copy()) for n in ("w", "b", "x", "g")}
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
