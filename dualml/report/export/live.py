"""TensorBoard files of a running run: they grow with the records of its rank 0."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from dualml.common.words import Messages
from dualml.experiment.store.folder import RunFolder
from dualml.experiment.store.manifest import Key, TrialRecord
from dualml.experiment.store.metrics_tail import MetricsTail
from dualml.report.export.tensorboard import EventFile, write_trial
from dualml.report.export.trial_log import start_timestamp, trial_name

#: Folder of the event files in a run folder.
TENSORBOARD = "tensorboard"
#: Seconds between two updates.
EVERY_S = 1.0
Listener = Callable[[TrialRecord, dict[str, Any]], None]


class LiveTensorBoard:
    """A listener of the trials of a run that passes events on to ``listen`` and copies new records
    to TensorBoard. No file stays open between two updates, so that a run may end at any time."""

    def __init__(self, folder: RunFolder, listen: Listener) -> None:
        self.folder, self.listen = folder, listen
        self.out, self.last = folder.path / TENSORBOARD, -math.inf
        self._seen: dict[Key, tuple[MetricsTail, Counter[str]]] = {}

    def __call__(self, trial: TrialRecord, event: dict[str, Any]) -> None:
        """Pass an event on to ``listen``, then write new records (`update`) if the event ends a
        trial (its ``phase`` is ``end``), or if it has a ``loss`` and the last update is at least
        `EVERY_S` seconds ago."""
        self.listen(trial, event)
        ended = event.get("phase") == "end"
        # Before its first loss, a resumed trial may still truncate old records.
        if ended or ("loss" in event and time.monotonic() - self.last >= EVERY_S):
            self.update(trial)

    def update(self, trial: TrialRecord) -> None:
        """Append the trial's records of rank 0 that were added since the last update to its event
        file in the folder ``tensorboard`` of the run folder."""
        place = self.folder.trial_folder(trial.key)
        records, written = self._seen.get(trial.key, (MetricsTail(place), None))
        while records.poll():
            pass
        if records.curves:
            begin = start_timestamp({"created": self.folder.run.created})
            file = EventFile(self.out / trial_name(trial), begin, written)
            with contextlib.closing(file) as events:
                events.add_scalars(records.curves)
            self._seen[trial.key] = records, file.written
        self.last = time.monotonic()

    def finish(self, words: Messages) -> None:
        """Write the final results, after the run has ended: other ranks' records, results and
        verdicts; trials whose records were not copied before get a complete file."""
        from dualml.experiment.store.load import load

        run = load([self.folder.path])
        for trial in run.trials:
            if trial.status != "unreadable":
                _, written = self._seen.get((trial.arm, trial.backend, trial.seed), (None, None))
                write_trial(run, trial, self.out, words, written)
