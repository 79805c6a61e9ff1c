"""Run a student's start of MindSpore's group up to the point where the scheduler would be
contacted.

The scheduler is a separate process, which cannot be started in the sandbox, and MindSpore forms its
group once per process. So `mindspore.communication` is replaced: the environment that `init` finds
is checked as the scheduler would check it, and the judge adds up the ranks' values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import communication
from mindspore.communication import management

from dualml.course.starting import (
    LOOPBACK,
    WorkFailed,
    check_rank,
    hide_variables,
    replace_functions,
    run_work,
)

Arrays = Mapping[str, Any]
#: Environment variables that MindSpore needs to form a group.
REQUIRED_VARIABLES = ("MS_ROLE", "MS_NODE_ID", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT")


class FakeCluster:
    """A replacement of `mindspore.communication` on one rank, with a scheduler at ``port`` of this
    machine that expects ``rank`` of ``size``.

    Attributes:
        formed: whether this process is in the group.
    """

    def __init__(self, rank: int, size: int, port: int) -> None:
        self.rank, self.size, self.port, self.formed = rank, size, port, False

    def init(self, backend_name: str | None = None) -> None:
        """Join the group that the environment variables describe; ``backend_name`` is ignored.

        Raises:
            RuntimeError: a variable is missing, or differs from what the scheduler expects.
        """
        missing = [name for name in REQUIRED_VARIABLES if not os.environ.get(name)]
        if missing:
            raise RuntimeError(f"environment variable {missing[0]} expected, but not set")
        if os.environ["MS_ROLE"] != "MS_WORKER":
            raise RuntimeError(f"MS_ROLE is {os.environ['MS_ROLE']!r}; a rank is a MS_WORKER")
        own, size = (int(os.environ[name]) for name in ("MS_NODE_ID", "MS_WORKER_NUM"))
        check_rank(self.rank, self.size, own, size)
        told = os.environ["MS_SCHED_HOST"], os.environ["MS_SCHED_PORT"]
        if told != (LOOPBACK, str(self.port)):
            raise RuntimeError(f"no scheduler at {':'.join(told)}; it is at {LOOPBACK}:{self.port}")
        self.formed = True

    def release(self) -> None:
        """Leave the group of ranks; raise RuntimeError if this process is not in it."""
        self.check()
        self.formed = False

    def check(self) -> None:
        """Raise RuntimeError if this process is not in the group."""
        if not self.formed:
            raise RuntimeError("Distributed Communication has not been initialized")

    def get_rank(self, group: str = "") -> int:
        """Return this process's rank; ``group`` is ignored.

        Raises:
            RuntimeError: this process is not in the group.
        """
        self.check()
        return self.rank

    def get_group_size(self, group: str = "") -> int:
        """Return the number of ranks; ``group`` is ignored.

        Raises:
            RuntimeError: this process is not in the group.
        """
        self.check()
        return self.size


def cluster(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any
) -> Arrays:
    """Run a student's function that joins a group, calls a function in it and leaves. ``sum`` is
    its result, which should be the sum of the ranks' ``value``, or with the option ``fails``, where
    the called function raises, 1 if that error came through; ``left`` is 1 if this process is still
    in the group."""
    port = int(comm.broadcast(ms.Tensor([draw_port(comm.rank)], ms.int32)).asnumpy()[0])
    joined = FakeCluster(comm.rank, comm.size, port)

    fails = bool(options.get("fails"))

    def work() -> float:
        joined.check()
        if fails:
            raise WorkFailed("the work fails")
        total = comm.all_reduce(ms.Tensor([float(arrays["value"])], ms.float32))
        return float(total.asnumpy()[0])

    names = ("init", "release", "get_rank", "get_group_size")
    functions = {name: getattr(joined, name) for name in names}
    with hide_variables(), replace_functions(module, (communication, management), functions):
        run = getattr(module, target)
        found = run_work(lambda: run(comm.rank, comm.size, LOOPBACK, port, work), fails)
    return {"sum": np.asarray(found), "left": np.asarray(float(joined.formed))}


def draw_port(rank: int) -> int:
    """Return a number for the scheduler's port on rank 0, else 0; the sandbox opens no socket."""
    return 0 if rank else 20_000 + os.getpid() % 10_000
