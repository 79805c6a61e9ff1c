"""Run a student's RPC pipeline: rank 0 drives, ranks 1 and 2 hold the stages."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed.rpc as rpc

from dualml.course.returned import read_number, read_tensor
from dualml_torch.course.convert import copy_to_array
from dualml_torch.course.drive_lab4 import MomentumDescent, parameters

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


class Stage(torch.nn.Module):
    """One half of the model: x·Wᵀ + b, followed by softsign if ``bent``.

    Attributes:
        calls: number of its forward passes.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, bent: bool) -> None:
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
        self.bent, self.calls = bent, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs of this half for samples ``x``, one per row."""
        self.calls += 1
        z = torch.nn.functional.linear(x, self.weight, self.bias)
        return torch.nn.functional.softsign(z) if self.bent else z


def stage_values(reference: Any) -> dict[str, Any]:
    """Return name → copy of the parameters of the stage on this rank that ``reference`` refers
    to."""
    return {name: p.detach().numpy().copy() for name, p in parameters(reference.local_value())}


def call_count(reference: Any) -> int:
    """Return how often the referenced stage has gone forward on the rank that holds it."""
    return int(reference.local_value().calls)


def remote(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any = None
) -> Arrays:
    """Run the student's pipeline ``target`` of ``module`` on rank 0, while the others serve.
    ``3/0/weight`` is the weight of stage 0 after update 3, ``3/loss`` the loss before it, unless
    the step returns None, which ``3/none`` says, ``outputs`` those of the trained model, and
    ``calls/0`` the number of forward passes of stage 0 where it lives. On other ranks the result is
    empty."""
    start_agent(comm)
    comm.barrier()
    out: dict[str, Any] = {}
    if comm.rank == 0:
        made = [
            rpc.remote(
                worker_name(rank),
                Stage,
                args=(*(torch.from_numpy(arrays[f"{n}{i}"].copy()) for n in ("w", "b")), i == 0),
            )
            for i, rank in enumerate(STAGES)
        ]
        pipeline = getattr(module, target)(made, MomentumDescent, options["lr"])
        for step in range(1, options["steps"] + 1):
            x, y = (torch.from_numpy(arrays[f"{n}/{step}"].copy()) for n in "xy")
            loss = pipeline.step(torch.nn.functional.mse_loss, x, y)
            if loss is None:
                out[f"{step}/none"] = np.ones(())
            else:
                out[f"{step}/loss"] = np.asarray(read_number(loss, f"{target}.step"))
            for i, reference in enumerate(made):
                now = rpc.rpc_sync(reference.owner(), stage_values, args=(reference,))
                out |= {f"{step}/{i}/{n}": a for n, a in now.items()}
        outputs = pipeline.forward(torch.from_numpy(arrays[f"x/{options['steps']}"].copy()))
        out["outputs"] = read_tensor(outputs, copy_to_array, f"{target}.forward")
        for i, reference in enumerate(made):
            calls = rpc.rpc_sync(reference.owner(), call_count, args=(reference,))
            out[f"calls/{i}"] = np.array(calls)
    comm.barrier()
    return out
