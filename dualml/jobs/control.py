"""Operations on jobs for the command line, whether they run on this machine or in Slurm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dualml.errors import UserError
from dualml.files import read_json
from dualml.jobs import local, slurm
from dualml.jobs.store import WAITING, Job, Jobs, State, check_here
from dualml.words import Words


def submit(
    jobs: Jobs,
    on: Literal["local", "slurm"],
    words: Sequence[str],
    out: Path,
    *,
    cores: int = 0,
    gpus: int = 0,
    memory: int = 0,
    options: Sequence[str] = (),
    **more: Any,
) -> Job:
    """Put a run, or a command, into a queue.

    Args:
        jobs: all jobs of the user.
        on: the queue.
        words: of ``dualml run``, without ``--out``; empty for a command.
        out: the run folder; ``{id}`` in it is replaced by the number of the job.
        cores, gpus, memory: of this machine; 0 cores means all of them.
        options: of ``sbatch``.
        more: other fields of `JobSpec`.

    Raises:
        UserError: the job asks for more than the machine has, Slurm refuses it, or the queue is
            full.
    """
    if on == "local":
        local.Capacity().check(cores, gpus, memory)
    else:
        slurm.there("sbatch")
    job = jobs.add(
        on=on, words=list(words), cwd=os.getcwd(), out=str(out.absolute()), python=sys.executable,
        cores=cores, gpus=gpus, memory=memory, options=list(options), **more,
    )  # fmt: skip
    begin(jobs, job)
    return job


def begin(jobs: Jobs, job: Job) -> None:
    """Hand a job over to Slurm, or make sure that a scheduler process of this machine will start
    it."""
    if job.on == "slurm":
        slurm.submit(jobs, job)
    else:
        local.ensure(jobs)


def stop(jobs: Jobs, number: int) -> State:
    """End a job, or remove it from the queue.

    Raises:
        UserError: it is unknown, belongs to another machine or user, or has ended already.
    """
    job = jobs.job(number)
    check_here(job)
    state = look(jobs, job)
    if state.status not in WAITING:
        raise UserError(f"job {number} has ended already: {named(state)}")
    if job.on == "slurm":
        slurm.stop(jobs, job)
    else:
        local.stop(jobs, number)
    return jobs.state(number)


def resume(jobs: Jobs, number: int) -> Job:
    """Put a job that did not end well into the queue again; it resumes its run.

    Raises:
        UserError: it is unknown, belongs to another machine or user, is waiting or running, or
            ended well; or it is a command, which dualml cannot resume.
    """
    job = jobs.job(number)
    check_here(job)
    if job.command:
        text = "only its script knows where it stands; submit it again"
        raise UserError(f"job {number} is a command, and dualml cannot go on with one: {text}")
    state = look(jobs, job)
    if state.status not in ("failed", "stopped"):
        raise UserError(
            f"job {number}: {named(state)}; only one that failed or was stopped goes on"
        )
    with jobs.locked():
        jobs.change(number, status="queued", starts=0, stopping=False, reason=None, code=None)
    begin(jobs, job)
    return job


def named(state: State) -> str:
    """Return the status as `dualml jobs` prints it."""
    return Words("en")(f"jobs.status.{state.status}")


def look(jobs: Jobs, job: Job) -> State:
    """Return the current state of a job."""
    return slurm.look(jobs, job) if job.on == "slurm" else jobs.state(job.id)


@dataclass(frozen=True)
class Row:
    """One job in the list.

    Attributes:
        job, state: of the job.
        place: position in its queue, from 1; None where it does not wait.
        ended, total: trials of its run; None before there is a run folder.
        seconds: since its status changed.
        left: estimated seconds until it ends; None where unknown.
    """

    job: Job
    state: State
    place: int | None
    ended: int | None
    total: int | None
    seconds: float
    left: float | None

    def describe(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {
            "id": self.job.id, "on": self.job.on, "status": self.state.status,
            "reason": self.state.reason, "code": self.state.code, "place": self.place,
            "words": self.job.shown, "name": self.job.name, "out": self.job.out,
            "submitted": self.job.submitted,
            "since": self.state.since, "ended": self.ended, "total": self.total,
            "seconds": self.seconds, "left": self.left, "slurm": self.state.slurm,
            "cores": self.state.cores, "gpus": self.state.gpus,
            "workers": self.job.workers if self.job.command else None,
        }  # fmt: skip


def rows(jobs: Jobs, everything: bool = False) -> list[Row]:
    """List the jobs that wait or run and the last ten that have ended, or all of them.

    This also starts the scheduler process of this machine where there are jobs for it, for example
    after it was killed or the machine was down.
    """
    local.ensure(jobs)
    return listed(jobs, everything)


def listed(
    jobs: Jobs, everything: bool = False, now: Callable[[Jobs, Job], State] = look
) -> list[Row]:
    """Make the rows of the list, without starting a scheduler process.

    Args:
        jobs: all jobs of the user.
        everything: whether to include all jobs that have ended.
        state_of: returns the current state of a job.
    """
    known = [(job, now(jobs, job)) for job in map(jobs.job, jobs.numbers())]
    over = [job.id for job, state in known if state.status not in WAITING]
    hidden = set() if everything else set(over[:-10])
    place, found = 0, list[Row]()
    for job, state in known:
        waits = state.status == "queued"
        place += waits and job.on == "local"
        if job.id in hidden:
            continue
        ended, total = progress(Path(job.out)) if state.status != "queued" else (None, None)
        seconds = time.time() - state.since
        left = None
        if state.status == "running" and ended and total:
            left = seconds / ended * (total - ended)
        own = place if waits and job.on == "local" else None
        found.append(Row(job, state, own, ended, total, seconds, left))
    return found


def progress(out: Path) -> tuple[int | None, int | None]:
    """Return how many trials of a run have ended, and how many it has; None for both where there is
    no run folder yet."""
    try:
        trials = read_json(out / "run.json")["trials"]
        statuses = [trial["status"] for trial in trials]
    except (OSError, UserError, LookupError, TypeError):
        return None, None
    return sum(status != "interrupted" for status in statuses), len(statuses)
