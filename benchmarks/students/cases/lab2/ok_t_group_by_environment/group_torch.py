"""Lab 2: the process group and the remote calls, started and ended by yourself, in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.distributed.rpc as rpc


def run_group(rank: int, size: int, address: str, port: int, work: Callable[[], Any]) -> Any:
    """Join the process group of all ranks, do the work in it, and leave it again.

    Every rank calls this with a rank of its own and with everything else alike.

    Args:
        rank: this process's number, from 0 to size - 1.
        size: how many processes take part.
        address, port: where rank 0 is to be found.
        work: what to do in the group, which is the default one, with gloo.

    Returns:
        what ``work`` returns.
    """
    # your code: begin
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(size)
    dist.init_process_group(backend="gloo", init_method="env://")
    try:
        result = work()
    finally:
        dist.destroy_process_group()
    return result
    # your code: end


def run_rpc(rank: int, size: int, address: str, port: int, work: Callable[[], Any]) -> Any:
    """Start this rank's agent for remote calls, do the work, and stop when all are done.

    Args:
        rank, size, address, port: as of `run_group`; the agents are called ``worker0``,
            ``worker1``, …
        work: what to do while the agents are there.

    Returns:
        what ``work`` returns.
    """
    # your code: begin
    os.environ["MASTER_ADDR"] = address
    os.environ["MASTER_PORT"] = str(port)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
    try:
        return work()
    finally:
        rpc.shutdown()
    # your code: end
