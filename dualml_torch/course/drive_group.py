"""Run a student's start of a process group and of remote calls, on ranks that reach one another
over a loopback interface of their own."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

from dualml.course.starting import (
    LOOPBACK,
    WorkFailed,
    check_port,
    check_rank,
    find_port,
    hide_variables,
    replace_functions,
    run_work,
)

Arrays = Mapping[str, Any]
#: Timeout of ranks that wait for one another, in seconds, in place of half an hour.
WAIT_S = 4.0
#: Options of an agent in the sandbox: no shared memory, no Unix sockets.
AGENT = {
    "rpc_timeout": WAIT_S,
    "num_worker_threads": 2,
    "_transports": ["uv"],
    "_channels": ["basic"],
}


def number_or_environ(options: Mapping[str, Any], name: str, variable: str, none: int) -> int:
    """Return a number as the framework reads it: the argument ``name``, unless it is None, −1 or
    missing, else the environment ``variable``, else ``none``."""
    value = options.get(name)
    return int(os.environ.get(variable, none) if value is None or value == -1 else value)


def meeting_port(options: Mapping[str, Any]) -> int | None:
    """Return the port at which a start meets the other ranks, from ``init_method`` (also that of
    ``rpc_backend_options``) or the environment; None if it has no port there."""
    backend = options.get("rpc_backend_options")
    method = str(getattr(backend, "init_method", options.get("init_method")) or "env://")
    if options.get("store") is not None:
        return None
    told = os.environ.get("MASTER_PORT") if method == "env://" else str(urlsplit(method).port)
    return int(told) if told and told.isdecimal() else None


@contextlib.contextmanager
def check_starts(module: Any, rank: int, size: int, port: int) -> Iterator[None]:
    """Check the rank, the size and the port of each start of a group or an agent by ``module``
    inside the block, by `check_rank` and `check_port`, and shorten its timeouts."""
    init_group, init_rpc = dist.init_process_group, rpc.init_rpc

    def wrap_start(original: Callable[..., Any], shorten: Callable[[dict[str, Any]], None]) -> Any:
        def begin(*arguments: Any, **options: Any) -> Any:
            bound = inspect.signature(original).bind(*arguments, **options)
            bound.apply_defaults()
            given = bound.arguments
            # Without a number the framework raises its own error.
            own = number_or_environ(given, "rank", "RANK", rank)
            every = number_or_environ(given, "world_size", "WORLD_SIZE", size)
            check_rank(rank, size, own, every)
            check_port(port, meeting_port(given) or port)
            shorten(given)
            return original(*bound.args, **bound.kwargs)

        return begin

    def shorten_group_wait(given: dict[str, Any]) -> None:
        given["timeout"] = timedelta(seconds=WAIT_S)

    def shorten_agent_wait(given: dict[str, Any]) -> None:
        method = getattr(given["rpc_backend_options"], "init_method", "env://")
        given["rpc_backend_options"] = rpc.TensorPipeRpcBackendOptions(init_method=method, **AGENT)

    functions = {
        "init_process_group": wrap_start(init_group, shorten_group_wait),
        "init_rpc": wrap_start(init_rpc, shorten_agent_wait),
    }
    with replace_functions(module, (dist, dist.distributed_c10d, rpc), functions):
        yield


def group(
    module: Any, target: str, options: Mapping[str, Any], arrays: Arrays, comm: Any
) -> Arrays:
    """Run the student's ``run_group`` or ``run_rpc`` (``target``) of ``module`` on every rank.
    ``sum`` is the number that it returned: the sum of the ranks' ``value``, a remote call's value +
    1, or, with the option ``fails``, 1 if the error of the work has come through. ``left`` is 1 if
    something was not shut down, which is done here, else 0."""
    port = int(comm.broadcast(torch.tensor(find_port())))
    rank, size, value = comm.rank, comm.size, float(arrays["value"])

    def add() -> float:
        total = torch.tensor([value])
        dist.all_reduce(total)
        return total.item()

    def call_next_rank() -> float:
        other = f"worker{(rank + 1) % size}"
        return float(rpc.rpc_sync(other, torch.add, args=(torch.tensor(value), 1.0)))

    def fail() -> float:
        raise WorkFailed("the work fails")

    fails = bool(options.get("fails"))
    work = fail if fails else add if target == "run_group" else call_next_rank
    with hide_variables(), check_starts(module, rank, size, port):
        os.environ.update(GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
        try:
            run = getattr(module, target)
            found = run_work(lambda: run(rank, size, LOOPBACK, port, work), fails)
            comm.barrier()  # an agent that stops early would not answer the others
            left = dist.is_initialized() or rpc._is_current_rpc_agent_set()
        finally:
            end_all()
    return {"sum": np.asarray(found), "left": np.asarray(float(left))}


def end_all() -> None:
    """Shut down what a student's code has left running."""
    with contextlib.suppress(RuntimeError, ValueError):
        if rpc._is_current_rpc_agent_set():
            rpc.shutdown(graceful=False)
        if dist.is_initialized():
            dist.destroy_process_group()
