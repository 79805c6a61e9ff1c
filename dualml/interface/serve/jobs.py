"""Observe the jobs of this user, without starting a queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import resolve_links
from dualml.interface.serve.cache import Cache
from dualml.runner.jobs import slurm
from dualml.runner.jobs.control import JobRow, make_rows
from dualml.runner.jobs.store import JOB, STATE, WAITING, Jobs, JobSpec, JobState

#: Minimum seconds between two Slurm queries about one job: the controller is shared.
ASK_S = 15.0
#: Seconds for which the rows are cached, because a page needs them several times.
SAME_S = 0.5


@dataclass(frozen=True)
class CachedJobs(Jobs):
    """Jobs whose files are cached until they change: there may be thousands."""

    cache: Cache

    def job(self, number: int) -> JobSpec:
        """Return the request of a job, from the cache if its file has not changed; `UserError` if
        there is none."""
        return self.cache.read(self.folder(number) / JOB.name, JOB.read)

    def state(self, number: int) -> JobState:
        """Return the recorded state of a job, from the cache if its file has not changed;
        `UserError` if there is none."""
        return self.cache.read(self.folder(number) / STATE.name, STATE.read)


@dataclass
class JobMonitor:
    """Table of jobs; Slurm is queried in the background.

    A Slurm query may take a minute; its answer is written to the job's state file.
    """

    jobs: CachedJobs
    _asked: dict[int, float] = field(default_factory=dict)
    _rows: tuple[float, list[JobRow]] = field(default_factory=lambda: (-SAME_S, []))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self) -> list[JobRow]:
        """Return the rows of waiting, running and recently ended jobs, at most `SAME_S` seconds
        old.

        Raises:
            UserError: a file of a job cannot be read.
        """
        with self._lock:
            if time.monotonic() - self._rows[0] >= SAME_S:
                self._rows = time.monotonic(), make_rows(self.jobs, state_of=self.current_state)
            return self._rows[1]

    def current_state(self, jobs: Jobs, job: JobSpec) -> JobState:
        """Return the recorded state of a job; start a Slurm query in the background if the job
        waits or runs there and the last query is older than `ASK_S` seconds."""
        state = jobs.state(job.id)
        asked = self._asked.get(job.id, -ASK_S)
        waits = state.status in WAITING and job.on == "slurm" and state.slurm is not None
        if waits and time.monotonic() - asked >= ASK_S:
            self._asked[job.id] = time.monotonic()
            threading.Thread(target=self.query_slurm, args=(job,), daemon=True).start()
        return state

    def query_slurm(self, job: JobSpec) -> None:
        """Query Slurm about a job, and write the answer to the job's state file; errors are
        ignored, because the query is repeated."""
        try:
            slurm.refresh_state(Jobs(self.jobs.path), job)
        except (UserError, OSError):
            return  # the query is repeated

    def run_folders(self) -> list[Path]:
        """Return the run folders of the jobs shown; none if their files cannot be read."""
        try:
            return [Path(row.job.out) for row in self.rows()]
        except UserError:
            return []

    def logs(self, run: Path) -> Sequence[tuple[str, Path]]:
        """Return name and log file of each job shown that belongs to a run; none if the jobs cannot
        be read."""
        try:
            rows = self.rows()
        except UserError:
            return ()
        own = [row.job.id for row in rows if resolve_links(Path(row.job.out)) == resolve_links(run)]
        return [(f"job {number}", self.jobs.log(number)) for number in own]
