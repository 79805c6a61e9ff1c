"""Run a student's PyTorch code on inputs that the judge has drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dualml_torch.course.drive_accumulation import accumulate as accumulate
from dualml_torch.course.drive_bottleneck import balanced as balanced
from dualml_torch.course.drive_bottleneck import diagnose as diagnose
from dualml_torch.course.drive_bottleneck import measure as measure
from dualml_torch.course.drive_bottleneck import split as split
from dualml_torch.course.drive_checkpoint import checkpoint as checkpoint
from dualml_torch.course.drive_lab2 import aggregate as aggregate
from dualml_torch.course.drive_lab2 import measured as measured
from dualml_torch.course.drive_lab2 import ring as ring
from dualml_torch.course.drive_lab3 import same_start as same_start
from dualml_torch.course.drive_lab3 import sampler as sampler
from dualml_torch.course.drive_lab3 import train_steps as train_steps
from dualml_torch.course.drive_lab4 import layer as layer
from dualml_torch.course.drive_lab4 import stages as stages
from dualml_torch.course.drive_loader import loader as loader
from dualml_torch.course.drive_memory import zero as zero
from dualml_torch.course.drive_methods import scaler as scaler
from dualml_torch.course.drive_server import rows as rows
from dualml_torch.course.sealed import seal as seal

Arrays = Mapping[str, Any]


def optimizer(module: Any, target: str, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Run the student's optimizer class ``target`` for the option ``steps`` of updates; ``3/w`` of
    the result is parameter w, float32, after update 3.

    With the option ``optimizers`` there are several, each for its parameters and updates; with
    ``unchanged`` the result also has what the optimizer was given: gradients, list of parameters,
    learning rate.

    Args:
        module: the student's module.
        options: ``hyper``, the hyperparameters, and variations of the run.
        arrays: ``p/w``, the start of parameter w, and ``g/3/w``, its gradient in update 3; without
            it the parameter has no gradient in that update.
    """
    names = [key[2:] for key in arrays if key.startswith("p/")]
    own = {n: torch.nn.Parameter(torch.from_numpy(arrays[f"p/{n}"].copy())) for n in names}
    groups = options.get("groups", {})
    params: list[Any] = list(own.values())
    if groups:
        rest = [own[n] for n in names if n not in groups]
        params = [
            {"params": rest},
            *({"params": [own[n]], **hyperparameters(groups[n])} for n in groups),
        ]
    make = getattr(module, target)
    alone = {"hyper": options["hyper"], "first": 1, "last": options["steps"]}
    plans = options.get("optimizers", [alone])
    opts: dict[int, Any] = {}
    kept: dict[str, torch.Tensor] = {}
    out: dict[str, Any] = {}
    for step in range(1, options["steps"] + 1):
        for i, plan in enumerate(plans):
            if plan["first"] == step:
                # An iterator, as model.parameters() is one, where there are several.
                given = iter([own[n] for n in plan["names"]]) if "names" in plan else params
                opts[i] = make(given, **hyperparameters(plan["hyper"]))
        for i, opt in opts.items():
            if not plans[i]["first"] <= step <= plans[i]["last"]:
                continue
            change_settings(opt, options, step)
            mine = {n: own[n] for n in plans[i].get("names", names)}
            for name, p in mine.items():
                g = arrays.get(f"g/{step}/{name}")
                if g is None:
                    p.grad = None
                elif options.get("rewritten"):  # as zero_grad(set_to_none=False) and backward do
                    p.grad = kept.setdefault(name, torch.zeros_like(p))
                    p.grad.copy_(torch.from_numpy(g.copy()))
                else:
                    p.grad = torch.from_numpy(g.copy())
            opt.step()
            # A class may have replaced the parameters by other tensors.
            out |= {f"{step}/{n}": to_array(p.to(torch.float32)) for n, p in mine.items()}
            if options.get("unchanged"):
                left = {n: p.grad for n, p in mine.items() if p.grad is not None}
                out |= {f"{step}/{n}.grad": to_array(g) for n, g in left.items()}
    if options.get("unchanged"):
        place = {id(p): i for i, p in enumerate(own.values())}
        out["parameters"] = np.array([place.get(id(p), -1) for p in params], np.float32)
        out["lr"] = np.array(float(opts[0].param_groups[0]["lr"]), np.float32)
    return out


def change_settings(opt: Any, options: Mapping[str, Any], step: int) -> None:
    """Write the settings of update ``step`` into all groups of an optimizer in place: the learning
    rate from the option ``rates``, and hyperparameters from ``settings``, one entry per update
    each; do nothing without these options."""
    new = {}
    if "rates" in options:
        new["lr"] = options["rates"][step - 1]
    if "settings" in options:
        new |= hyperparameters(options["settings"][step - 1])
    for group in opt.param_groups if new else ():
        group.update(new)


def hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters read from JSON, with lists (betas) as tuples."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


def to_array(x: Any) -> Any:
    """Return a copy of a tensor, detached, or of anything that NumPy accepts, as an array."""
    return x.detach().cpu().numpy().copy() if isinstance(x, torch.Tensor) else np.array(x)


def to_tensor(a: Any, like: Any) -> torch.Tensor:
    """Return a copy of an array as a tensor of the type of the tensor ``like``."""
    return torch.from_numpy(np.array(a)).to(like.dtype)


def fill(a: Any, buffer: torch.Tensor) -> torch.Tensor:
    """Write an array into ``buffer`` and return it, detached; if ``buffer`` is not contiguous, only
    the returned tensor, a copy, is written."""
    own = buffer.detach().contiguous()
    own.copy_(torch.from_numpy(np.array(a)))
    return own


def training(module: Any, target: str, options: Mapping[str, Any], arrays: Arrays) -> Arrays:
    """Train a softmax regression with the student's optimizer class ``target``, in each update on a
    batch of ``order`` or on all samples if the option ``whole`` is set; return the ``losses``
    before each update. ``arrays``: ``weight``, ``bias``, ``x``, ``y``, and ``order`` (updates,
    batch)."""
    weight, bias = (
        torch.nn.Parameter(torch.from_numpy(arrays[n].copy())) for n in ("weight", "bias")
    )
    opt = getattr(module, target)([weight, bias], **hyperparameters(options["hyper"]))
    x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"]).long()
    losses = []
    for batch in torch.from_numpy(arrays["order"]).long():
        at = slice(None) if options["whole"] else batch
        weight.grad = bias.grad = None
        loss = torch.nn.functional.cross_entropy(x[at] @ weight + bias, y[at])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return {"losses": np.array(losses)}


def remote(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's RPC pipeline; arguments and result are those of
    `dualml_torch.course.drive_rpc.remote`, which is imported only here because that takes a
    second."""
    from dualml_torch.course import drive_rpc

    return drive_rpc.remote(module, target, options, arrays, comm)


def remote_tables(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's model with a parameter server; arguments and result are those of
    `dualml_torch.course.drive_remote.remote_tables`."""
    from dualml_torch.course import drive_remote

    return drive_remote.remote_tables(module, target, options, arrays, comm)


def group(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's process group; arguments and result are those of
    `dualml_torch.course.drive_group.group`."""
    from dualml_torch.course import drive_group

    return drive_group.group(module, target, options, arrays, comm)
