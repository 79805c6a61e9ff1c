"""Lab 2: the group of ranks, started and ended by yourself, in MindSpore."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from mindspore import communication


def run_group(rank: int, size: int, address: str, port: int, work: Callable[[], Any]) -> Any:
    """Join the group of all ranks, do the work in it, and leave it again.

    Every rank calls this with a rank of its own and with everything else alike.

    Args:
        rank: this process's number, from 0 to size - 1.
        size: how many processes take part; the scheduler is none of them.
        address, port: where the scheduler is to be found.
        work: what to do in the group.

    Returns:
        what ``work`` returns.
    """
    # your code: begin
    os.environ["MS_SCHED_HOST"] = address
    os.environ["MS_SCHED_PORT"] = str(port)
    os.environ["MS_WORKER_NUM"] = str(size + 1)  # the scheduler, too
    os.environ["MS_NODE_ID"] = str(rank)
    os.environ["MS_ROLE"] = "MS_WORKER"
    communication.init()
    try:
        return work()
    finally:
        communication.release()
    # your code: end
