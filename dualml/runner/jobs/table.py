"""Jobs as a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dualml.common.words import Messages
from dualml.report.blocks import Cell, Column, Table, Tone
from dualml.runner.jobs.control import JobRow

TONES: dict[str, Tone] = {"ok": "good", "different": "bad", "failed": "bad"}
#: Columns that a narrow terminal omits.
OPTIONAL_COLUMNS = ("place", "seconds", "left")
COLUMNS = ("id", "on", "status", "place", "trials", "seconds", "left", "run", "out")


def jobs_table(rows: Sequence[JobRow], words: Messages) -> Table:
    """Return the table of jobs, one row per job."""
    columns = [
        Column(name, words(f"jobs.column.{name}"), optional=name in OPTIONAL_COLUMNS)
        for name in COLUMNS
    ]
    return Table("jobs", "", columns, [row_cells(row, words) for row in rows])


def row_cells(row: JobRow, words: Messages) -> list[Cell | str]:
    """Return the cells of a job: number and name, queue, status, position in the queue, trials,
    seconds in this status and left, command, folder. Unknown ones are empty."""
    status = words(f"jobs.status.{row.state.status}")
    if row.state.reason:
        status = f"{status}: {row.state.reason}"
    return [
        str(row.job.id) if row.job.name is None else f"{row.job.id} {row.job.name}",
        row.job.on if row.state.slurm is None else f"{row.job.on} {row.state.slurm}",
        Cell(status, TONES.get(row.state.status, "")),
        "" if row.queue_position is None else str(row.queue_position),
        "" if row.trials_total is None else f"{row.trials_ended}/{row.trials_total}",
        f"{row.seconds:.0f} s",
        "" if row.seconds_left is None else f"{row.seconds_left:.0f} s",
        shlex.join(row.job.command_line),
        relative_path(row.job.out),
    ]


def relative_path(path: str) -> str:
    """Return a path relative to the current folder if it is inside, else unchanged."""
    return (
        str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
    )
