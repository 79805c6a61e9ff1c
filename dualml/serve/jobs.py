"""The jobs of this user, looked at: nobody's queue is begun by that."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.errors import UserError
from dualml.files import resolved
from dualml.jobs import slurm
from dualml.jobs.control import Row, listed
from dualml.jobs.store import JOB, STATE, WAITING, Job, Jobs, State
from dualml.serve.cache import Cache

#: Between two questions to Slurm about one job: its controller is everybody's.
ASK_S = 15.0
#: A page asks several times how jobs stand.
SAME_S = 0.5


@dataclass(frozen=True)
class Kept(Jobs):
    """Jobs whose files are read again when they have changed: there may be thousands."""

    cache: Cache

    def job(self, number: int) -> Job:
        return self.cache.read(self.folder(number) / JOB.name, JOB.read)

    def state(self, number: int) -> State:
        return self.cache.read(self.folder(number) / STATE.name, STATE.read)


@dataclass
class Board:
    """How jobs stand. Slurm is asked beside: its answer may take a minute, and stands in the file
    of the job's state when it comes."""

    jobs: Kept
    _asked: dict[int, float] = field(default_factory=dict)
    _rows: tuple[float, list[Row]] = field(default_factory=lambda: (-SAME_S, []))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self) -> list[Row]:
        """Those that wait or run, and the last ones that have ended. Raises `UserError` where a
        file of them cannot be read."""
        with self._lock:
            if time.monotonic() - self._rows[0] >= SAME_S:
                self._rows = time.monotonic(), listed(self.jobs, now=self.now)
            return self._rows[1]

    def now(self, jobs: Jobs, job: Job) -> State:
        state = jobs.state(job.id)
        asked = self._asked.get(job.id, -ASK_S)
        waits = state.status in WAITING and job.on == "slurm" and state.slurm is not None
        if waits and time.monotonic() - asked >= ASK_S:
            self._asked[job.id] = time.monotonic()
            threading.Thread(target=self.ask, args=(job,), daemon=True).start()
        return state

    def ask(self, job: Job) -> None:
        try:
            slurm.look(Jobs(self.jobs.path), job)
        except (UserError, OSError):
            return  # it is asked again

    def outs(self) -> list[Path]:
        """The run folders of the jobs shown; none where their files cannot be read."""
        try:
            return [Path(row.job.out) for row in self.rows()]
        except UserError:
            return []

    def logs(self, run: Path) -> Sequence[tuple[str, Path]]:
        """Name and file of what the jobs of a run have printed."""
        try:
            rows = self.rows()
        except UserError:
            return ()
        own = [row.job.id for row in rows if resolved(Path(row.job.out)) == resolved(run)]
        return [(f"job {number}", self.jobs.log(number)) for number in own]
