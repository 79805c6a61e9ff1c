"""The queue of this machine: first come, first served, as far as cores, GPUs and memory allow.

A job that was running when the machine or its process went down is started again, and resumes from
the last checkpoint of its run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common import machine, variables
from dualml.common.errors import UserError
from dualml.common.files import open_to_append
from dualml.launch.process import start_session
from dualml.runner.jobs.process import process_start_time
from dualml.runner.jobs.store import MODE, WAITING, Jobs, JobSpec, JobState, waited_too_long

#: Number of starts of a job whose process disappears.
STARTS = 3
POLL_S = 0.2
#: Seconds between two checks of the jobs' memory.
WEIGH_S = 2.0
#: Seconds within which a process that was started must record its pid.
COME_S = 60.0
STOP_S = 15.0


def usable_core_ids() -> Sequence[int]:
    """Return the numbers of the cores that this process may use."""
    return machine.USABLE or range(os.cpu_count() or 1)


@dataclass(frozen=True)
class Capacity:
    """Resources of this machine: core numbers, number of GPUs, bytes of memory."""

    cores: Sequence[int] = field(default_factory=usable_core_ids)
    gpus: int = field(default_factory=lambda: len(machine.query_gpus()[0]))
    memory: int = field(default_factory=machine.usable_memory)

    def check(self, cores: int, gpus: int, memory: int) -> None:
        """Raise `UserError` for a request (``memory`` in bytes) that exceeds the whole machine,
        whatever other jobs use."""
        asked = ((cores, len(self.cores), "cores"), (gpus, self.gpus, "GPUs"))
        for wanted, there, what in asked:
            if wanted > there:
                raise UserError(f"the job asks for {wanted} {what}; this machine has {there}")
        if memory > self.memory:
            raise UserError(
                f"the job asks for {memory / 2**30:.1f} GiB of memory; this machine has "
                f"{self.memory / 2**30:.1f} GiB"
            )


class LocalQueue:
    """The scheduler of this machine's jobs; only one process may run it.

    Args:
        jobs: all jobs of the user; those of other machines are ignored.
        capacity: resources to assign; by default those of this machine.
    """

    def __init__(self, jobs: Jobs, capacity: Capacity | None = None) -> None:
        self.jobs, self.capacity = jobs, capacity or Capacity()
        self.children = dict[int, subprocess.Popen[bytes]]()
        self.weighed = 0.0

    def run_once(self) -> bool:
        """Check the running jobs of this machine and start waiting ones, in order, until one does
        not fit; return whether any is running or waiting. The caller holds the lock of the jobs."""
        for number in [n for n, child in self.children.items() if child.poll() is not None]:
            del self.children[number]
        host = os.uname().nodename
        here = [
            (job, self.jobs.state(job.id))
            for job in map(self.jobs.job, self.jobs.numbers())
            if job.on == "local" and job.host == host
        ]
        running = [
            self.check_running(job, state) for job, state in here if state.status == "running"
        ]
        self.enforce_limits([(job, state) for job, state in here if state.status == "running"])
        left = [pair for pair in running if pair is not None]
        waiting = [job for job, _ in here if self.is_waiting(job)]
        for job in waiting:
            given = self.assign_resources(job, left)
            if given is None:
                break  # nobody overtakes: a large job would never get its turn
            self.start(job, *given)
            left.append((job, self.jobs.state(job.id)))
        return bool(left or waiting)

    def check_running(self, job: JobSpec, state: JobState) -> tuple[JobSpec, JobState] | None:
        """Return a running job with its state, or None where its process is gone; then it is
        recorded as queued again, stopped, or failed. A process that was just started is not
        gone."""
        if state.pid is None and time.time() - state.since < COME_S and job.id in self.children:
            return job, state
        if is_alive(state):
            return job, state
        if state.stopping:
            self.jobs.update_state(job.id, status="stopped", pid=None)
        elif job.command:
            why = "its process was gone, and a command cannot be gone on with"
            self.jobs.update_state(job.id, status="failed", pid=None, reason=why)
        elif state.starts >= STARTS:
            why = f"its process was gone {state.starts} times"
            self.jobs.update_state(job.id, status="failed", pid=None, reason=why)
        else:
            self.jobs.update_state(job.id, status="queued", pid=None, reason="its process was gone")
        return None

    def enforce_limits(self, running: Sequence[tuple[JobSpec, JobState]]) -> None:
        """Kill jobs that use more memory than they asked for, and end those that run longer; does
        nothing within `WEIGH_S` seconds of the last check."""
        if time.monotonic() - self.weighed < WEIGH_S:
            return
        self.weighed = time.monotonic()
        for job, state in running:
            used = tree_memory(state.pid) if job.memory and state.pid else 0
            if used > job.memory > 0:
                why = f"used {used / 2**20:.0f} MB; it asked for {job.memory / 2**20:.0f} MB"
                kill_tree(state)
                self.jobs.update_state(job.id, status="failed", pid=None, reason=why)
            elif job.limit and time.time() - state.since > job.limit:
                self.end_overdue(job, state)

    def end_overdue(self, job: JobSpec, state: JobState) -> None:
        """End a job that exceeds its time limit: on the first call by SIGTERM, on a call after the
        limit and `STOP_S` seconds by SIGKILL. Does not wait."""
        if not state.stopping:
            why = f"ran for longer than its limit of {job.limit:g} s"
            self.jobs.update_state(job.id, stopping=True, reason=why)
            kill(state, signal.SIGTERM)
        elif time.time() - state.since > job.limit + STOP_S:
            kill_tree(state)

    def is_waiting(self, job: JobSpec) -> bool:
        """Return whether a job waits for its turn; one that was never started and exceeds its
        waiting limit is recorded as stopped, and does not wait."""
        state = self.jobs.state(job.id)
        if state.status != "queued":
            return False
        late = job.wait and state.starts == 0 and time.time() - state.since > job.wait
        if late:
            self.jobs.update_state(
                job.id, status="stopped", stopping=True, reason=waited_too_long(job)
            )
        return not late

    def assign_resources(
        self, job: JobSpec, running: Sequence[tuple[JobSpec, JobState]]
    ) -> tuple[list[int], list[int]] | None:
        """Return the numbers of the cores and GPUs for a job, of those that the ``running`` jobs
        leave free; None where cores, GPUs or memory are too few. A job without a number of cores
        needs all."""
        states = [state for _, state in running]
        cores = [c for c in self.capacity.cores if not any(c in s.cores for s in states)]
        gpus = [g for g in range(self.capacity.gpus) if not any(g in s.gpus for s in states)]
        memory = self.capacity.memory - sum(other.memory for other, _ in running)
        wanted = job.cores or len(self.capacity.cores)
        if len(cores) < wanted or len(gpus) < job.gpus or memory < job.memory:
            return None
        return cores[:wanted], gpus[: job.gpus]

    def start(self, job: JobSpec, cores: list[int], gpus: list[int]) -> None:
        """Record a job as running on these cores and GPUs, and start its process, whose output goes
        to its log; if it cannot be started, record it as failed."""
        state = self.jobs.state(job.id)
        self.jobs.update_state(
            job.id,
            status="running",
            starts=state.starts + 1,
            cores=cores,
            gpus=gpus,
            pid=None,
            code=None,
        )
        module = "dualml.runner.jobs.runner"
        command = [job.python, "-P", "-m", module, str(self.jobs.path), str(job.id)]
        try:
            with open_to_append(self.jobs.log(job.id), MODE) as log:
                environ = {**os.environ, **job.environ}
                self.children[job.id] = start_session(command, log, env=environ)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            self.jobs.update_state(job.id, status="failed", reason=why)


def tree_memory(pid: int) -> int:
    """Return the resident bytes of a process and all its descendants, added up; pages that they
    share are counted for each of them. 0 if the process is gone."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += int(one.memory_info().rss)
    return total


def is_alive(state: JobState) -> bool:
    """Return whether the process of a job is still running; a later process with the same pid does
    not count."""
    known = state.pid and state.created is not None  # 0 would be a group of processes
    return bool(known) and process_start_time(int(state.pid or 0)) == state.created


def kill(state: JobState, sign: int) -> None:
    """Send the signal ``sign`` to the process of a job; do nothing if that process has ended, even
    if another one has its pid now."""
    if state.pid and is_alive(state):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(state.pid, sign)


def kill_tree(state: JobState) -> None:
    """Kill the process of a job and all its descendants by SIGKILL, in whatever process groups they
    are; do nothing if the job's process has ended."""
    import psutil

    if not state.pid or not is_alive(state):
        return
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(state.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                child.kill()
    kill(state, signal.SIGKILL)


def stop(jobs: Jobs, number: int) -> None:
    """Stop a job of this machine and return when it has ended: one that waits, or has not recorded
    its process yet, at once; one that runs by SIGTERM, and after `STOP_S` seconds by SIGKILL."""
    with jobs.locked():
        state = jobs.state(number)
        if state.status == "queued" or (state.status == "running" and state.pid is None):
            jobs.update_state(number, status="stopped", stopping=True)
            return
        jobs.update_state(number, stopping=True, reason=None)
    kill(state, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while jobs.state(number).status == "running" and time.monotonic() < deadline:
        time.sleep(POLL_S)
    with jobs.locked():
        state = jobs.state(number)
        if state.status == "running":
            kill_tree(state)
            jobs.update_state(number, status="stopped", pid=None)


def ensure_scheduler(jobs: Jobs) -> None:
    """Start a scheduler process on this machine if any local job waits or runs; do nothing
    otherwise.

    It outlives this process and its terminal, and ends with the last job, or at once where there is
    one already.
    """
    left = [n for n in jobs.numbers() if jobs.state(n).status in WAITING]
    if all(jobs.job(n).on != "local" for n in left):
        return
    hidden = (*variables.OPTIONS, *variables.SECRET)
    with open_to_append(jobs.path / "scheduler.log", MODE) as log:
        command = machine.python_argv("-m", "dualml.runner.jobs.scheduler", str(jobs.path))
        environ = {k: v for k, v in os.environ.items() if k not in hidden}
        start_session(command, log, cwd=Path("/"), env=environ)
