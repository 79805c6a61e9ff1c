"""The meeting point that rank 0 opens for the others: a key-value store, or MindSpore's
scheduler."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from mindspore.communication import management
from mindspore.mint.distributed import distributed as private

from dualml.algorithms.communicator import RankContext
from dualml.common.errors import CommunicationError, UserError
from dualml.launch.route import free_port
from dualml_ms.launch.external_launch import SCHEDULER

Scheduler = subprocess.Popen[bytes]
LOOPBACK = "127.0.0.1"
ATTEMPTS = 5


def store_functions() -> tuple[Any, Any] | None:
    """Return MindSpore's store class and the function that joins a cluster by a store; None if this
    version lacks either."""
    functions = getattr(private, "TCPStore", None), getattr(management, "_init_with_store", None)
    return None if None in functions else functions


def open_store(place: RankContext, host: str, port: int) -> Any:
    """Return MindSpore's key-value store: on rank 0 a new server, which listens on ``host`` alone,
    on other ranks a client of it. Only where `store_functions` is not None."""
    return store_functions()[0](
        host_name=host,
        port=port,
        world_size=place.size,
        is_master=place.rank == 0,
        timeout=timedelta(seconds=place.timeout),
        wait_for_workers=False,  # so that the port is published only once it is open
    )


def start_scheduler(place: RankContext, host: str, port: int) -> Scheduler:
    """Start MindSpore's scheduler, through which ranks find one another, as a process; it ends by
    `end_scheduler`, or with this process. Raise `OSError` if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))  # checked here: its own error would take seconds to arrive
    return subprocess.Popen(
        [sys.executable, "-P", "-c", SCHEDULER],
        env={**os.environ, **cluster_environ(place, "MS_SCHED", host, port)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def cluster_environ(place: RankContext, role: str, host: str, port: int) -> dict[str, str]:
    """Return the environment variables of a process in the cluster whose scheduler is at ``host``
    and ``port``; ``role`` is ``MS_SCHED`` for the scheduler itself, ``MS_WORKER`` for a rank."""
    return {
        "MS_ROLE": role,
        "MS_WORKER_NUM": str(place.size),
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_IP": place.address or host,
        "MS_NODE_ID": str(place.rank) if role == "MS_WORKER" else "sched",
        "MS_TOPO_TIMEOUT": str(max(1, math.ceil(place.timeout))),  # the default is 30 min
        "MS_RETRY_INTERVAL_LOWER": "1",
        "MS_RETRY_INTERVAL_UPPER": "1",
    }


def open_at_port(make: Callable[[int], Any], host: str, port: int) -> tuple[Any, int]:
    """Return ``make(port)`` and the port; for port 0 try up to `ATTEMPTS` free ports of ``host``
    until ``make`` raises no `RuntimeError` or `OSError`. Raise `CommunicationError` if none can be
    opened."""
    reason = ""
    for _ in range(1 if port else ATTEMPTS):
        chosen = port or free_port(host)
        try:
            return make(chosen), chosen
        except (RuntimeError, OSError) as error:
            reason = first_line(error)
    raise CommunicationError(f"rank 0 cannot open port {chosen} of {host}, is it in use? {reason}")


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``host:port`` into an IPv4 address, which MindSpore requires, and a port number; raise
    `UserError` if it is not that."""
    host, _, port = text.rpartition(":")
    try:
        return socket.gethostbyname(host), int(port)
    except (ValueError, OSError):
        raise UserError(f"rendezvous tcp://{text}: use tcp://host:port") from None


def end_scheduler(scheduler: Scheduler | None) -> None:
    """Kill rank 0's scheduler, which would otherwise stay for half a minute; None, the other ranks'
    value, is ignored."""
    if scheduler is not None:
        with suppress(ProcessLookupError):
            os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.wait()
        if scheduler.stdin:
            scheduler.stdin.close()


def first_line(error: BaseException) -> str:
    """Return the first line of a MindSpore error that has text, without its frames of dashes; the
    error's class name if there is none."""
    lines = [line.strip(" -.:") for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
