"""Jobs as a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from dualml.jobs.control import Row
from dualml.report.blocks import Cell, Column, Table, Tone
from dualml.words import Words

TONES: dict[str, Tone] = {"ok": "good", "different": "bad", "failed": "bad"}
#: Columns that a narrow terminal omits.
LEAST = ("place", "seconds", "left")
COLUMNS = ("id", "on", "status", "place", "trials", "seconds", "left", "run", "out")


def table(rows: Sequence[Row], words: Words) -> Table:
    """Return the table of jobs, one row per job."""
    columns = [
        Column(name, words(f"jobs.column.{name}"), optional=name in LEAST) for name in COLUMNS
    ]
    return Table("jobs", "", columns, [cells(row, words) for row in rows])


def cells(row: Row, words: Words) -> list[Cell | str]:
    """Return the cells of a job."""
    status = words(f"jobs.status.{row.state.status}")
    if row.state.reason:
        status = f"{status}: {row.state.reason}"
    return [
        str(row.job.id) if row.job.name is None else f"{row.job.id} {row.job.name}",
        row.job.on if row.state.slurm is None else f"{row.job.on} {row.state.slurm}",
        Cell(status, TONES.get(row.state.status, "")),
        "" if row.place is None else str(row.place),
        "" if row.total is None else f"{row.ended}/{row.total}",
        f"{row.seconds:.0f} s",
        "" if row.left is None else f"{row.left:.0f} s",
        shlex.join(row.job.shown),
        short(row.job.out),
    ]


def short(path: str) -> str:
    """Return a path relative to the current folder if it is inside, else unchanged."""
    return (
        str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
    )
