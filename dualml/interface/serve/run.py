"""View one run while it runs: its trials, their curves, its ranks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import is_regular
from dualml.experiment.store.manifest import Key, RunRecord, TrialRecord, read_run
from dualml.experiment.store.metrics_tail import MetricsTail
from dualml.experiment.store.records import Curve, records_path
from dualml.experiment.store.trial import JOB, log_path, trial_folder
from dualml.interface.serve.cache import Cache, file_stamp
from dualml.interface.serve.summaries import RunSummary, summarize

#: Trials that share one launch of ranks are prepared within so many nanoseconds of each other.
SAME_LAUNCH_NS = 2 * 10**9


@dataclass(frozen=True)
class TrialView:
    """View of a trial, complete or still running.

    Attributes:
        record: the trial in ``run.json``.
        state: the state in ``run.json``, or ``running`` or ``waiting`` if the run is running.
        world_size: number of its ranks.
        full_batch: whether each batch is the whole training set.
        curves: metric → what rank 0 has recorded so far.
        step: the last recorded update.
        problem: why the records cannot be read; empty if they can.
        size: bytes of the records that were read.
    """

    record: TrialRecord
    state: str
    world_size: int
    full_batch: bool
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    step: int | None = None
    problem: str = ""
    size: int = 0

    @property
    def updates(self) -> float | None:
        """The number of updates: the final one if it is known and not 0, else the last recorded
        one; None without either."""
        return self.record.updates or self.step

    @property
    def train_s(self) -> float | None:
        """The training time in seconds, or None if it is not known yet."""
        return self.record.train_s


@dataclass(frozen=True)
class RunView:
    """View of a run at one point in time.

    Attributes:
        summary: its row in the list of runs.
        record: the content of ``run.json``.
        trials: its trials, in the order of ``run.json``.
        groups: group → its arms that have trials, with ``main`` first.
    """

    summary: RunSummary
    record: RunRecord
    trials: Sequence[TrialView]
    groups: Mapping[str, Sequence[str]]

    @property
    def arms(self) -> Mapping[str, Any]:
        """All arms of the experiment, also those that did not run: arm → settings."""
        arms: dict[str, Any] = self.record.experiment.get("arms") or {}
        return arms


@dataclass
class RunWatcher:
    """Reader of running runs that keeps what it has read so far."""

    cache: Cache
    _records: dict[tuple[Path, int], MetricsTail] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def view_run(self, name: str, path: Path) -> RunView:
        """Return the current view of a run; raise `UserError` if it cannot be read."""
        found = summarize(self.cache, name, path)
        if found.problem:
            raise UserError(found.problem)
        record = self.cache.read(path / "run.json", read_run)
        now = running_trial(path, record) if found.state == "running" else None
        arms = record.experiment.get("arms") or {}
        groups: dict[str, list[str]] = {}
        ran = {trial.arm for trial in record.trials}
        for arm in (arm for arm in arms if arm in ran):
            groups.setdefault(arms[arm].get("group") or "main", []).append(arm)
        groups = dict(sorted(groups.items(), key=lambda item: item[0] != "main"))
        trials = [
            self.view_trial(path, trial, arms.get(trial.arm) or {}, found, now)
            for trial in record.trials
        ]
        return RunView(found, record, trials, groups)

    def view_trial(
        self,
        run: Path,
        record: TrialRecord,
        arm: Mapping[str, Any],
        found: RunSummary,
        now: Key | None,
    ) -> TrialView:
        """Return the current view of a trial.

        Args:
            run: the run folder.
            record: the trial in ``run.json``.
            arm: settings of its arm.
            found: summary of the run.
            now: key of the trial that is running; only that one gets the state ``running``.
        """
        records = self.poll_records(trial_folder(run, record.key))
        size = records.size  # before the curves: they may have grown meanwhile
        state: str = record.status
        if state == "interrupted" and found.state == "running":
            state = "running" if record.key == now else "waiting"
        return TrialView(
            record,
            state,
            max(record.world_size, arm.get("world_size", 1)),
            arm.get("batch_size") == 0,
            dict(records.curves),
            records.step,
            records.problem,
            size,
        )

    def poll_records(self, trial: Path, rank: int = 0) -> MetricsTail:
        """Return the records of a rank, updated with what was written since the last call."""
        with self._lock:
            growing = self._records.setdefault((trial, rank), MetricsTail(trial, rank))
        growing.poll()
        return growing


def running_trial(run: Path, record: RunRecord) -> Key | None:
    """Return the key of the trial that is running, or None; whether the run itself is running is
    not checked.

    Of the trials that have not ended, it is the one whose records were opened last since it was
    prepared. If there are no records yet, it is the first of those that were prepared together
    last.
    """
    prepared, begun = dict[Key, int](), dict[Key, int]()
    for trial in record.trials:
        place = trial_folder(run, trial.key)
        job, records = file_stamp(place / JOB.name), file_stamp(records_path(place, 0))
        if trial.status == "interrupted" and job:
            prepared[trial.key] = job[2]
            if records and records[2] >= job[2]:
                begun[trial.key] = records[2]
    if begun:
        return max(begun, key=lambda key: begun[key])
    last = max(prepared.values(), default=0)
    together = {key: at for key, at in prepared.items() if last - at < SAME_LAUNCH_NS}
    return min(together, key=lambda key: together[key], default=None)


def find_log(run: Path, seen: RunView, trial: TrialView, rank: int, cache: Cache) -> Path | None:
    """Return the path of the log of a rank of a trial, or None if there is none.

    Ranks that ran several trials have their log in the folder of the first one.
    """
    session = launch_key(run, trial.record, cache)
    together = [t.record for t in seen.trials if launch_key(run, t.record, cache) == session]
    for record in (trial.record, *(together if session else ())):
        path = log_path(trial_folder(run, record.key), rank)
        if is_regular(path):
            return path
    return None


def launch_key(run: Path, record: TrialRecord, cache: Cache) -> tuple[str, str, int] | None:
    """Return the key of the launch that a trial belongs to; None for a single rank, and where the
    job file is missing or damaged."""
    if record.world_size < 2:
        return None
    try:
        job = cache.read(trial_folder(run, record.key) / JOB.name, JOB.read_if_present)
    except UserError:
        return None
    return None if job is None else (job.backend, job.key, record.world_size)
