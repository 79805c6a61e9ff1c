"""Runs a student's pipeline over RPC: rank 0 drives, ranks 1 and 2 hold the stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc

from dualml_torch.course.drive_lab3 import Descent
from dualml_torch.course.drive_lab4 import parameters
from dualml_torch.rpc_agent import name_of, start

Arrays = Mapping[str, Any]
STAGES = (1, 2)


class Plain(Descent):
    """Gradient descent that needs nothing but a learning rate."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr, adaptive=False, eps=0.0)


def stage(weight: torch.Tensor, bias: torch.Tensor, bent: bool) -> Any:
    """One half, on the rank where this runs."""
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return torch.nn.Sequential(linear, torch.nn.Softsign()) if bent else linear


def values(reference: Any) -> dict[str, Any]:
    return {name: p.detach().numpy().copy() for name, p in parameters(reference.local_value())}


def remote(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """``3/0/weight``: of stage 0 after update 3; ``3/loss``: before it. On rank 0 alone."""
    start(comm)
    comm.barrier()
    out: dict[str, Any] = {}
    if comm.rank == 0:
        made = [
            rpc.remote(
                name_of(rank),
                stage,
                args=(*(torch.from_numpy(arrays[f"{n}{i}"].copy()) for n in ("w", "b")), i == 0),
            )
            for i, rank in enumerate(STAGES)
        ]
        pipeline = getattr(module, target)(made, Plain, options["lr"])
        for step in range(1, options["steps"] + 1):
            x, y = (torch.from_numpy(arrays[f"{n}/{step}"].copy()) for n in "xy")
            loss = pipeline.step(torch.nn.functional.mse_loss, x, y)
            out[f"{step}/loss"] = np.asarray(float(loss))
            for i, reference in enumerate(made):
                now = rpc.rpc_sync(reference.owner(), values, args=(reference,))
                out |= {f"{step}/{i}/{n}": a for n, a in now.items()}
    comm.barrier()
    return out
