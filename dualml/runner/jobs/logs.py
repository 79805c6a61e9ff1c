"""The output of a job, or of one rank of its run."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import is_regular, open_to_read
from dualml.runner.jobs.control import job_state
from dualml.runner.jobs.store import WAITING, Jobs, JobSpec
from dualml.runner.jobs.workers.record import log_path

POLL_S = 0.2


def find_log(jobs: Jobs, job: JobSpec, rank: int | None) -> Path:
    """Return the path of a log: of the job if ``rank`` is None (it may not exist yet), else of a
    command's worker or of a run's rank (in the last trial it took part in).

    Raises:
        UserError: that rank has no log yet.
    """
    if rank is None:
        return jobs.log(job.id)
    if job.command:
        if not is_regular(path := log_path(Path(job.out), rank)):
            text = f"it has {job.workers} workers, from 0"
            raise UserError(f"job {job.id}: worker {rank} has printed nothing yet; {text}")
        return path
    every = Path(job.out).glob(f"trials/*/*/*/rank{rank}.log")
    logs = [path for path in every if is_regular(path) and not path.is_symlink()]
    if not logs:
        raise UserError(f"job {job.id}: no trial in {job.out} has a rank {rank} yet")
    return max(logs, key=lambda path: path.stat().st_mtime)


def iter_log(jobs: Jobs, job: JobSpec, rank: int | None, follow: bool) -> Iterator[str]:
    """Yield the text of a log in pieces, up to its present end; with ``follow`` until the job has
    ended, and where the job's own log does not exist yet, wait for it.

    Args:
        jobs: all jobs of the user.
        job: the job.
        rank: None for the log of the job; else that of one rank or worker.
        follow: whether to follow the log.

    Raises:
        UserError: that rank has no log yet.
    """
    if not follow:
        yield from follow_file(find_log(jobs, job, rank), lambda: True)
        return

    def is_job_over() -> bool:
        """Whether the job has ended."""
        return job_state(jobs, job).status not in WAITING

    while rank is None and not jobs.log(job.id).exists() and not is_job_over():
        time.sleep(POLL_S)
    yield from follow_file(find_log(jobs, job, rank), is_job_over)


def follow_file(path: Path, is_over: Callable[[], bool]) -> Iterator[str]:
    """Yield a file's text in pieces as it grows, until ``is_over()`` returns True: nothing more
    will be appended. Yield nothing if there is no file."""
    try:
        with (
            open_to_read(path, follow_links=False) as content,
            io.TextIOWrapper(content, encoding="utf-8", errors="replace") as file,
        ):
            while True:
                last = is_over()  # before the file is read: what comes later is not missed
                while piece := file.read(2**16):
                    yield piece
                if last:
                    return
                time.sleep(POLL_S)
    except FileNotFoundError:
        return
