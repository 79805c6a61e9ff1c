"""The records of a group's trials, kept in the run folder while their ranks train."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.experiment.plan import Plan
from dualml.experiment.store.manifest import Key, Status, TrialRecord
from dualml.experiment.store.times import TIMELINE, TIMES
from dualml.experiment.store.trial import TrialResult, log_path
from dualml.launch.supervise import GroupResult, describe_exit, last_lines
from dualml.parallel.aggregation import ASYNCHRONOUS
from dualml.parallel.aggregation.times import communication_share, split_times
from dualml.parallel.split.timeline_stats import summary
from dualml.runner.session.prepare import FrozenRun

Listener = Callable[[TrialRecord, dict[str, Any]], None]
#: Fields of a worker's result that are copied into ``run.json``.
COPIED = (TrialRecord.model_fields.keys() & TrialResult.model_fields) - {
    "status",
    "reason",
    "world_size",
}


@dataclass
class TrialRecords:
    """The records of the trials of a group, which its ranks run one after the other.

    Attributes:
        frozen: the run.
        keys: the trials, each as (arm, backend, seed).
        listen: called as ``listen(trial, event)`` with each event of a trial.
        trial_index: index of the current trial in ``keys``; their number after the last one.
        start_time: when the current trial started, on the clock of `time.monotonic`.
        elapsed_before: seconds it had taken in earlier starts.
    """

    frozen: FrozenRun
    keys: Sequence[Key]
    listen: Listener
    trial_index: int = 0
    start_time: float = 0.0
    elapsed_before: float = 0.0

    @property
    def has_several_ranks(self) -> bool:
        """Whether the trials have more than one rank."""
        return self.frozen.plan.experiment.arms[self.keys[0][0]].world_size > 1

    def refuse(self, status: Status, why: str) -> None:
        """Record in the run folder that none of these trials can be started, with ``status`` and
        the reason ``why``, and report the end of each to the listener."""
        for key in self.keys:
            trial = self.frozen.folder.change(key, status=status, reason=why, wall_s=0.0)
            self.frozen.folder.write()
            self.listen(trial, {"phase": "end"})

    def record_end(self, ended: GroupResult) -> None:
        """Record how the ranks ended, once they are gone: the current trial failed or, with a
        single rank, succeeded. Nothing is recorded if several ranks ended after their last
        trial."""
        if not self.has_several_ranks and not ended.reason and not ended.code and ended.results:
            self.finish_trial(ended.results[0])
        elif self.trial_index < len(self.keys):
            self.fail_trial(ended)

    def start_trial(self, at: int) -> None:
        """Make trial ``at`` (from 0) the current one, recorded as ``interrupted`` until it ends; do
        nothing more if there is no such trial."""
        self.trial_index, self.start_time = at, time.monotonic()
        if at < len(self.keys):
            self.elapsed_before = self.frozen.folder.trials[self.keys[at]].wall_s or 0.0
            trial = self.update_trial(status="interrupted", reason="not finished")
            self.listen(trial, {"phase": "start"})

    def update_trial(self, **values: Any) -> TrialRecord:
        """Change fields of the current trial's record, in memory, and return it."""
        return self.frozen.folder.change(self.keys[self.trial_index], **values)

    def add_elapsed(self) -> None:
        """Set the current trial's seconds so far, with those of earlier launches, in memory; do
        nothing once all trials have ended."""
        if self.trial_index < len(self.keys):
            self.update_trial(wall_s=self.elapsed_before + time.monotonic() - self.start_time)

    def on_event(self, rank: int, event: JsonObject) -> None:
        """Handle an event of a rank's process: of rank 0, pass its progress (an event with
        ``phase``) to the listener, and record the end of a trial (``settled``); ignore other
        ranks."""
        if self.trial_index < len(self.keys) and rank == 0:
            if event.get("event") == "settled":
                self.finish_trial(event)
            elif "phase" in event:
                self.listen(self.frozen.folder.trials[self.keys[self.trial_index]], event)

    def finish_trial(self, result: Mapping[str, Any]) -> None:
        """Record that the current trial has ended successfully, with the fields of ``result``, and
        make the next one the current one."""
        name, backend, _ = key = self.keys[self.trial_index]
        arm, environment = self.frozen.plan.experiment.arms[name], result["environment"]
        values = {field: result[field] for field in COPIED if field in result}
        if arm.world_size > 1 or arm.cores:
            values["threads"] = environment.get("threads")
        if arm.world_size > 1 or arm.split is not None:
            values |= rank_times(self.frozen.folder.trial_folder(key), self.frozen.plan, name)
            values["world_size"] = result.get("world_size", 1)
        if spent := values.get("spent"):
            taken = self.elapsed_before + time.monotonic() - self.start_time
            values["spent"] = {"start": max(0.0, taken - sum(spent.values())), **spent}
        self.update_trial(status="ok", reason=None, **values)
        usual = arm.world_size == 1 and not arm.cores
        if usual or backend not in self.frozen.folder.run.environment:
            self.frozen.folder.set_environment(backend, environment)
        self.end_trial()

    def fail_trial(self, ended: GroupResult) -> None:
        """Record that the current trial has failed, or is unsupported: which rank, why, and the end
        of its log. Make the next trial the current one, without starting its ranks."""
        result = ended.results.get(ended.rank, {})
        log = last_lines(log_path(self.frozen.folder.trial_folder(self.keys[0]), ended.rank))
        if result.get("status") not in (None, "ok") and not ended.reason:
            whose = f"rank {ended.rank}: " if self.has_several_ranks else ""
            self.update_trial(status=result["status"], reason=f"{whose}{result['reason']}", log=log)
        else:
            why = ended.reason or describe_exit(ended.code)
            self.update_trial(status="failed", reason=f"rank {ended.rank} {why}", log=log)
        self.end_trial()

    def end_trial(self) -> None:
        """Write the current trial's record to the run folder, report its end, and make the next one
        the current one."""
        self.add_elapsed()
        self.frozen.folder.write()
        self.listen(self.frozen.folder.trials[self.keys[self.trial_index]], {"phase": "end"})
        self.start_trial(self.trial_index + 1)


def rank_times(place: Path, plan: Plan, arm: str) -> dict[str, Any]:
    """Return how the ranks of the trial in the folder ``place`` spent their time, from the records
    they wrote: ``ranks``, a dict per rank, and ``communication_share``; for a split model
    ``ranks``, and further facts of the timeline as ``split``. Empty if a record is missing or
    damaged."""
    settings, split_plan = plan.experiment.arms[arm], plan.splits.get(arm)
    n = settings.world_size
    try:
        if split_plan is not None:
            measured = summary(split_plan, TIMELINE.read_all(place, n))
            return {"ranks": measured.pop("ranks", []), "split": measured}
        times = TIMES.read_all(place, n)
    except UserError:
        return {}
    peers = None
    if settings.aggregation.strategy == "neighbour":
        peers = [sorted({(r - 1) % n, r, (r + 1) % n}) for r in range(n)]
    elif settings.aggregation.strategy == ASYNCHRONOUS:
        peers = [[r] for r in range(n)]  # nobody waits for all
    ranks = split_times(times, peers)
    return {"ranks": ranks, "communication_share": communication_share(ranks)}
