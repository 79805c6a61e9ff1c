"""Operations on jobs for the command line, whether they run on this machine or in Slurm."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.runner.jobs import local, slurm
from dualml.runner.jobs.store import WAITING, Jobs, JobSpec, JobState, check_ownership


class JobFields(TypedDict, total=False):
    """Fields of `JobSpec` that a submission may set."""

    cores: int
    gpus: int
    memory: int
    options: list[str]
    name: str | None
    lang: str
    limit: float
    wait: float
    command: list[str]
    workers: int
    nodes: int
    mindspore: bool


def submit(
    jobs: Jobs,
    on: Literal["local", "slurm"],
    words: Sequence[str],
    out: Path,
    **fields: Unpack[JobFields],
) -> JobSpec:
    """Put a run, or a command, into a queue; for the queue of this machine, its scheduler process
    is started if there is none.

    Args:
        jobs: all jobs of the user.
        on: the queue.
        words: of ``dualml run``, without ``--out``; empty for a command.
        out: the run folder; ``{id}`` in it is replaced by the number of the job.
        fields: other fields of `JobSpec`; 0 cores means all of this machine.

    Raises:
        UserError: the job asks for more than the machine has, Slurm is missing or refuses it, or
            the queue is full.

    Returns:
        The job as recorded, with its number.
    """
    if on == "local":
        local.Capacity().check(
            fields.get("cores", 0), fields.get("gpus", 0), fields.get("memory", 0)
        )
    else:
        slurm.require_program("sbatch")
    job = jobs.add(
        on=on,
        words=list(words),
        cwd=os.getcwd(),
        out=str(out.absolute()),
        python=sys.executable,
        **fields,
    )
    enqueue(jobs, job)
    return job


def enqueue(jobs: Jobs, job: JobSpec) -> None:
    """Hand a job over to Slurm, or make sure that a scheduler process of this machine will start
    it."""
    if job.on == "slurm":
        slurm.submit(jobs, job)
    else:
        local.ensure_scheduler(jobs)


def stop(jobs: Jobs, number: int) -> JobState:
    """End a job, or remove it from the queue, and return its new state.

    Raises:
        UserError: it is unknown, belongs to another machine or user, or has ended already; or Slurm
            refuses to cancel it.
    """
    job = jobs.job(number)
    check_ownership(job)
    state = job_state(jobs, job)
    if state.status not in WAITING:
        raise UserError(f"job {number} has ended already: {status_label(state)}")
    if job.on == "slurm":
        slurm.stop(jobs, job)
    else:
        local.stop(jobs, number)
    return jobs.state(number)


def resume(jobs: Jobs, number: int) -> JobSpec:
    """Put a job that failed or was stopped into its queue again, and return its request; when it
    starts, it resumes its run.

    Raises:
        UserError: it is unknown, belongs to another machine or user, is waiting or running, or
            ended well or ``different``; it is a command, which dualml cannot resume; or Slurm
            refuses it.
    """
    job = jobs.job(number)
    check_ownership(job)
    if job.command:
        text = "only its script knows where it stands; submit it again"
        raise UserError(f"job {number} is a command, and dualml cannot go on with one: {text}")
    state = job_state(jobs, job)
    if state.status not in ("failed", "stopped"):
        raise UserError(
            f"job {number}: {status_label(state)}; only one that failed or was stopped goes on"
        )
    with jobs.locked():
        jobs.update_state(number, status="queued", starts=0, stopping=False, reason=None, code=None)
    enqueue(jobs, job)
    return job


def status_label(state: JobState) -> str:
    """Return the status as `dualml jobs` prints it, in English."""
    return Messages("en")(f"jobs.status.{state.status}")


def job_state(jobs: Jobs, job: JobSpec) -> JobState:
    """Return the current state of a job, as recorded; for a job of Slurm that has not ended after
    asking Slurm and recording what changed."""
    return slurm.refresh_state(jobs, job) if job.on == "slurm" else jobs.state(job.id)


@dataclass(frozen=True)
class JobRow:
    """One job in the list.

    Attributes:
        job, state: of the job.
        queue_position: from 1, in the queue of this machine; None where it does not wait there.
        trials_ended, trials_total: of its run; None while it waits, and without a run folder.
        seconds: since its status changed.
        seconds_left: estimated until it ends; None where unknown.
    """

    job: JobSpec
    state: JobState
    queue_position: int | None
    trials_ended: int | None
    trials_total: int | None
    seconds: float
    seconds_left: float | None

    def describe(self) -> JsonObject:
        """Return the row as JSON values: fields of job and state, the ``place`` in the queue,
        trials that have ``ended`` and their ``total``, ``seconds`` in this status and ``left``."""
        return {
            "id": self.job.id,
            "on": self.job.on,
            "status": self.state.status,
            "reason": self.state.reason,
            "code": self.state.code,
            "place": self.queue_position,
            "words": self.job.command_line,
            "name": self.job.name,
            "out": self.job.out,
            "submitted": self.job.submitted,
            "since": self.state.since,
            "ended": self.trials_ended,
            "total": self.trials_total,
            "seconds": self.seconds,
            "left": self.seconds_left,
            "slurm": self.state.slurm,
            "cores": self.state.cores,
            "gpus": self.state.gpus,
            "workers": self.job.workers if self.job.command else None,
        }


def list_jobs(jobs: Jobs, everything: bool = False) -> list[JobRow]:
    """List the jobs that wait or run and the last ten that have ended, or with ``everything`` all
    of them, in the order of their numbers.

    This also starts the scheduler process of this machine where there are jobs for it, for example
    after it was killed or the machine was down.
    """
    local.ensure_scheduler(jobs)
    return make_rows(jobs, everything)


def make_rows(
    jobs: Jobs, everything: bool = False, state_of: Callable[[Jobs, JobSpec], JobState] = job_state
) -> list[JobRow]:
    """Make the rows of the jobs that wait or run and of the last ten that have ended, in the order
    of their numbers, without starting a scheduler process.

    Args:
        jobs: all jobs of the user.
        everything: whether to include all jobs that have ended.
        state_of: returns the current state of a job.
    """
    known = [(job, state_of(jobs, job)) for job in map(jobs.job, jobs.numbers())]
    over = [job.id for job, state in known if state.status not in WAITING]
    hidden = set() if everything else set(over[:-10])
    place, found = 0, list[JobRow]()
    for job, state in known:
        waits = state.status == "queued"
        place += waits and job.on == "local"
        if job.id in hidden:
            continue
        ended, total = count_trials(Path(job.out)) if state.status != "queued" else (None, None)
        seconds = time.time() - state.since
        left = None
        if state.status == "running" and ended and total:
            left = seconds / ended * (total - ended)
        own = place if waits and job.on == "local" else None
        found.append(JobRow(job, state, own, ended, total, seconds, left))
    return found


def count_trials(out: Path) -> tuple[int | None, int | None]:
    """Return how many trials of a run have ended, well or not, and how many it has; None for both
    where there is no run folder yet."""
    try:
        trials = read_json(out / "run.json")["trials"]
        statuses = [trial["status"] for trial in trials]
    except (OSError, UserError, LookupError, TypeError):
        return None, None
    return sum(status != "interrupted" for status in statuses), len(statuses)
