"""The owner of a job's workers on one node: starts them, keeps their output, and ends all of them
when one fails, when time is up, or when it is told to end itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.common.files import open_to_append, remove_file
from dualml.common.machine import thread_variables, usable_cores
from dualml.common.words import Messages
from dualml.launch.process import start_session
from dualml.launch.supervise import PEERS_S
from dualml.runner.jobs.workers.diagnosis import is_port_used
from dualml.runner.jobs.workers.environment import WorkerEnv
from dualml.runner.jobs.workers.record import (
    WorkerExit,
    exit_file,
    failure_code,
    first_failure,
    log_path,
)
from dualml.runner.jobs.workers.scheduler import mindspore_scheduler
from dualml.runner.jobs.workers.tail import LogTail

POLL_S = 0.1
#: Seconds from SIGTERM to SIGKILL.
GRACE_S = 3.0
#: Exit codes of `timeout` when time is up, and of a shell for a command that it cannot start.
EXIT_TIMED_OUT, EXIT_NOT_STARTED = 124, 127


@dataclass
class Worker:
    """State of a worker's process.

    Attributes:
        worker_env: its rank and address.
        process: its process.
        began: start time on the clock of `time.monotonic`.
        code: exit code; None while it runs.
        seconds: from its start to its end.
        reason: why it was ended by others; None otherwise.
    """

    worker_env: WorkerEnv
    process: subprocess.Popen[bytes]
    began: float = field(default_factory=time.monotonic)
    code: int | None = None
    seconds: float = 0.0
    reason: str | None = None

    def poll(self) -> None:
        """Notice the end of the process, and kill what it has left in its process group. Afterwards
        the system may reuse the group's number."""
        if self.code is None and (code := self.process.poll()) is not None:
            self.code, self.seconds = code, time.monotonic() - self.began
            self.signal(signal.SIGKILL)

    def signal(self, sign: int) -> bool:
        """Send a signal to the worker's process group; return whether there was one that accepted
        it."""
        try:
            os.killpg(self.process.pid, sign)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def run_workers(
    command: Sequence[str], seats: Sequence[WorkerEnv], out: Path | None, limit: float = 0.0
) -> int:
    """Run a command once for each rank of this node, until all have ended.

    Args:
        command: of each worker.
        seats: rank and address of each worker on this node.
        out: folder for their logs and records; None if they print where this process does.
        limit: seconds that they may take; 0 for no limit.

    Returns:
        0, or the exit code of the worker that failed by itself, 128 and more for a signal; 124
        where time was up, 127 where the command cannot be started.

    Raises:
        KeyboardInterrupt: after all workers and their children are gone.
    """
    with contextlib.ExitStack() as stack:
        workers = list[Worker]()
        stack.callback(end_groups, workers)
        stack.enter_context(mindspore_scheduler(command, seats[0]))
        try:
            workers += (start(command, worker_env, out) for worker_env in seats)
        except OSError as error:
            print(f"dualml: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            return EXIT_NOT_STARTED
        tails = (
            [] if out is None else [LogTail(log_path(out, s.rank), s.rank, s.size) for s in seats]
        )
        met = None
        try:
            met = wait_for_workers(workers, tails, limit)
        finally:
            abort_workers(workers, "was ended with its job")
            for tail in tails:
                tail.copy(last=True)
            exits = write_exits(workers, out, met)
    return job_exit_code(exits)


def start(command: Sequence[str], worker_env: WorkerEnv, out: Path | None) -> Worker:
    """Start a worker in a session of its own, which the system kills if this process dies; an
    earlier log and record of this rank in ``out`` are replaced.

    Args:
        command: of the worker.
        worker_env: its rank and address.
        out: folder for its log; None if it prints where this process does.

    Raises:
        OSError: the command cannot be started.
    """
    threads = (
        {} if "OMP_NUM_THREADS" in os.environ else thread_variables(cores_per_worker(worker_env))
    )
    environ = {**os.environ, **threads, **worker_env.variables(), "PYTHONUNBUFFERED": "1"}
    with contextlib.ExitStack() as stack:
        log = None
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            remove_file(out / exit_file(worker_env.rank).name)
            log = stack.enter_context(open_to_append(log_path(out, worker_env.rank)))
            log.truncate(0)
        process = start_session(command, log, signal.SIGKILL, env=environ)
    return Worker(worker_env, process)


def cores_per_worker(worker_env: WorkerEnv) -> int:
    """Return the number of cores for each worker of this node, an equal share of the usable ones
    and at least one; nothing is pinned."""
    return max(1, usable_cores() // worker_env.local_size)


def wait_for_workers(
    workers: Sequence[Worker], tails: Sequence[LogTail], limit: float
) -> bool | None:
    """Wait for all workers, and print what they add to their logs; end the others where one fails,
    and all of them after ``limit`` seconds (0: no limit).

    Returns:
        Whether something connected to the port where they form a group; None where that cannot be
        observed here.
    """
    worker_env = workers[0].worker_env
    ports = [port for port in (worker_env.port, worker_env.scheduler) if port]
    looks = worker_env.rank == 0 and worker_env.size > 1
    met: bool | None = None
    begin, fault = time.monotonic(), None
    while any(worker.code is None for worker in workers):
        time.sleep(POLL_S)
        for worker in workers:
            worker.poll()
        for tail in tails:
            tail.copy()
        met = met or (is_port_used(ports) if looks else None)
        now = time.monotonic()
        failed = next((w for w in workers if w.code), None)
        fault = fault or (now if failed else None)
        if failed and fault and now - fault > PEERS_S:
            abort_workers(workers, f"was ended, as worker {failed.worker_env.rank} failed")
        elif limit and now - begin > limit:
            abort_workers(workers, f"took longer than the limit of {limit:g} s")
    return met


def abort_workers(workers: Sequence[Worker], reason: str) -> None:
    """End the workers that still run, and record ``reason`` as the reason of their end; return when
    they are gone."""
    for worker in workers:
        worker.poll()
        if worker.code is None:
            worker.reason = reason
    end_groups(workers)


def end_groups(workers: Sequence[Worker]) -> None:
    """End the process groups of the workers that still run, and wait: SIGTERM, and after at most
    `GRACE_S` seconds SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for worker in workers:
            if worker.code is None:
                worker.signal(sign)
        deadline = time.monotonic() + GRACE_S
        while any(worker.code is None for worker in workers) and time.monotonic() < deadline:
            time.sleep(POLL_S / 5)
            for worker in workers:
                worker.poll()


def write_exits(workers: Sequence[Worker], out: Path | None, met: bool | None) -> list[WorkerExit]:
    """Write to the job's folder ``out``, if it has one, how the workers on this node ended, print a
    line for each that failed, and return their ends. Without a folder, also print if worker 0 saw
    no connection (``met``)."""
    host, exits = socket.gethostname(), list[WorkerExit]()
    for worker in workers:
        rank, code = worker.worker_env.rank, -1 if worker.code is None else worker.code
        known: dict[str, Any] = {"rank": rank, "host": host, "code": code}
        known["seconds"] = round(worker.seconds, 3)
        known |= {"reason": worker.reason} if worker.reason else {}
        known |= {"met": met} if met is not None and rank == 0 else {}
        ending = WorkerExit.model_validate(known)
        exits.append(ending)
        if out is not None:
            exit_file(rank).write(out, ending)
        if line := ending.describe_failure():
            print(f"dualml: {line}", file=sys.stderr, flush=True)
        elif out is None and met is False:  # nobody else will say it
            text = Messages("en")(
                "workers.apart", size=worker.worker_env.size, port=worker.worker_env.port
            )
            print(f"dualml: {text}", flush=True)
    return exits


def job_exit_code(exits: Sequence[WorkerExit]) -> int:
    """Return the exit code of the job: that of a worker that failed by itself (128 + n for signal
    n), `EXIT_TIMED_OUT` if workers were only aborted, else 0."""
    if (code := failure_code(first_failure(exits))) is not None:
        return code
    return EXIT_TIMED_OUT if any(ended.reason for ended in exits) else 0
