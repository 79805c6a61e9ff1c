"""TensorBoard: event files, one TensorBoard run per trial, ``ARM/BACKEND/seedN``."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.experiment.store.records import Curve
from dualml.experiment.store.run import RunData, Trial
from dualml.report.export.base import TARGETS, ExportJob, require_library
from dualml.report.export.trial_log import (
    points,
    rank_curves,
    start_timestamp,
    trial_name,
    trial_results,
    trial_settings,
    verdict_lines,
)

#: `DataType.DT_STRING` of TensorFlow.
STRING = 7


@TARGETS.register("tensorboard", 30)
def write(job: ExportJob) -> str:
    """Write every metric by update, the trial's settings, and as text the experiment, the trial and
    its verdicts; return the folder. Raise `UserError` if TensorBoard is missing or the requested
    folder is not empty."""
    require_library("tensorboard", "tensorboard")
    with job.folder() as out:
        for trial in job.trials:
            write_trial(job.run, trial, out, job.words)
    return str(out)


def write_trial(
    run: RunData, trial: Trial, out: Path, words: Messages, written: Counter[str] | None = None
) -> None:
    """Write all events of a trial.

    Args:
        run: the run.
        trial: the trial to write.
        out: folder of the TensorBoard runs.
        words: the messages.
        written: metric → number of records already in the file, which is appended to; it is
            updated in place. None: a new file.
    """
    place = out / trial_name(trial)
    with contextlib.closing(EventFile(place, start_timestamp(run.meta), written)) as events:
        events.add_scalars(rank_curves(trial.folder, trial.world_size))
        write_summary(events, run, trial, words)


def write_summary(events: EventFile, run: RunData, trial: Trial, words: Messages) -> None:
    """Write everything of a trial but its curves: settings, the experiment, results and
    verdicts."""
    from dualml.report.blocks import Table
    from dualml.report.columns import columns
    from dualml.report.page import markdown
    from dualml.report.topics.settings import experiment

    settings = trial_settings(run, trial)
    events.add_settings(settings)
    tables = [markdown.table(block) for block in experiment(run, words) if isinstance(block, Table)]
    events.add_text("experiment", "\n\n".join(tables))
    values = {**settings, "status": trial.status, "reason": trial.reason, **trial_results(trial)}
    rows = [[key, numbers.plain(value)] for key, value in values.items() if value != ""]
    events.add_text(
        "trial", markdown.table(Table("trial", "", columns(words, "name", "value"), rows))
    )
    if lines := verdict_lines(run, trial, words):
        events.add_text("verdict", "\n".join(f"- {markdown.escape(line)}" for line in lines))


class EventFile:
    """The event file of one trial, opened at once in a folder that is made if needed; close it at
    the end. TensorBoard keeps numbers in float32.

    Args:
        folder: folder of the TensorBoard run.
        begin: seconds since 1970 at which the training seconds begin.
        written: metric → number of records already in the file, which is appended to; it is
            updated in place. None: a new file.
    """

    def __init__(self, folder: Path, begin: float, written: Counter[str] | None = None) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"events.out.tfevents.{int(begin):010d}.dualml"
        self.begin = begin
        self.written = Counter[str]() if written is None else written
        self._records = RecordWriter(path.open("wb" if written is None else "ab"))
        if written is None:
            self._write(file_version="brain.Event:2")

    def add_scalars(self, curves: Mapping[str, Curve]) -> None:
        """Write the points that the curves have gained since the last call."""
        for tag, curve in curves.items():
            for step, value, seconds in points(curve, curves, self.written[tag]):
                content = {"value": [{"tag": tag, "simple_value": value}]}
                self._write(seconds, step=step, summary=content)
            self.written[tag] = len(curve.step)

    def add_text(self, tag: str, markdown: str) -> None:
        """Write a Markdown text."""
        tensor = {"dtype": STRING, "tensor_shape": {}, "string_val": [markdown.encode()]}
        metadata = {"plugin_data": {"plugin_name": "text"}}
        self._write(summary={"value": [{"tag": tag, "tensor": tensor, "metadata": metadata}]})

    def add_settings(self, settings: Mapping[str, str | int | float | bool]) -> None:
        """Write the settings for TensorBoard's hyperparameter page."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._write(summary=hparams_pb(dict(settings), start_time_secs=self.begin))

    def close(self) -> None:
        """Close the file after writing what is buffered."""
        self._records.close()

    def _write(self, seconds: float = 0.0, **content: Any) -> None:
        """Append one event, ``seconds`` after the file's ``begin``; ``content`` are fields of
        TensorBoard's `Event`."""
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=self.begin + seconds, **content)
        self._records.write(event.SerializeToString())
