"""Run a student's RPC pipeline: rank 0 drives, ranks 1 and 2 hold the stages."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc

from dualml.course.returned import read_number
from dualml_torch.course.drive_lab3 import Descent
from dualml_torch.course.drive_lab4 import parameters

with warnings.catch_warnings():
    # Every functional optimizer is compiled at the import, from source that is hidden afterwards.
    warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
    import torch.distributed.optim

Arrays = Mapping[str, Any]
STAGES = (1, 2)
#: Seconds that a call to another rank may take.
CALL_S = 5.0


def worker_name(rank: int) -> str:
    """Return the name of a rank's RPC agent, such as ``rank0``."""
    return f"rank{rank}"


def start_agent(comm: Any) -> None:
    """Start this rank's agent of `torch.distributed.rpc`, which all ranks do together; they reach
    one another over a loopback interface of their own."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = int(comm.broadcast(torch.tensor(door.getsockname()[1])))
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}",
        rpc_timeout=CALL_S,
        num_worker_threads=2,
        _transports=["uv"],
        _channels=["basic"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        rpc.init_rpc(worker_name(comm.rank), None, comm.rank, comm.size, options)


class PlainDescent(Descent):
    """Gradient descent that takes only a learning rate."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr, adaptive=False, eps=0.0)


def make_stage(weight: torch.Tensor, bias: torch.Tensor, bent: bool) -> Any:
    """Make one half of the model on the rank where this runs: x·Wᵀ + b, followed by softsign if
    ``bent``."""
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return torch.nn.Sequential(linear, torch.nn.Softsign()) if bent else linear


def stage_values(reference: Any) -> dict[str, Any]:
    """Return copies of the parameters of a referenced stage."""
    return {name: p.detach().numpy().copy() for name, p in parameters(reference.local_value())}


def remote(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run a student's pipeline on rank 0, while the others serve; ``3/0/weight`` is the weight of
    stage 0 after update 3, ``3/loss`` the loss before it. On other ranks the result is empty."""
    start_agent(comm)
    comm.barrier()
    out: dict[str, Any] = {}
    if comm.rank == 0:
        made = [
            rpc.remote(
                worker_name(rank),
                make_stage,
                args=(*(torch.from_numpy(arrays[f"{n}{i}"].copy()) for n in ("w", "b")), i == 0),
            )
            for i, rank in enumerate(STAGES)
        ]
        pipeline = getattr(module, target)(made, PlainDescent, options["lr"])
        for step in range(1, options["steps"] + 1):
            x, y = (torch.from_numpy(arrays[f"{n}/{step}"].copy()) for n in "xy")
            loss = pipeline.step(torch.nn.functional.mse_loss, x, y)
            out[f"{step}/loss"] = np.asarray(read_number(loss, f"{target}.step"))
            for i, reference in enumerate(made):
                now = rpc.rpc_sync(reference.owner(), stage_values, args=(reference,))
                out |= {f"{step}/{i}/{n}": a for n, a in now.items()}
    comm.barrier()
    return out
