"""The largest models that trained within a memory limit, if a run folder has them.

`dualml largest … --out RUN` writes them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from dualml.common.words import Messages
from dualml.experiment.store.largest import LARGEST, LargestRow
from dualml.experiment.store.run import RunData
from dualml.planning.cost.units import format_bytes
from dualml.report.blocks import Block
from dualml.report.largest import table
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def rows(run: RunData) -> list[LargestRow]:
    """Return the rows that `dualml largest` wrote to the folders of the run, one after the other;
    none if no folder has any."""
    records = (LARGEST.read_if_present(folder) for folder in run.folders)
    return [row for record in records if record for row in record.rows]


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of the largest models; nothing if no run folder has any."""
    if every := rows(run):
        yield table(every, words)


def findings(notes: Notes, run: RunData) -> None:
    """Add, per backend, the setting that trains the largest model beside the one that trains the
    smallest; nothing if they have equally many blocks or different limits."""
    every = rows(run)
    for backend in dict.fromkeys(row.backend for row in every):
        own = sorted((row for row in every if row.backend == backend), key=attrgetter("parameters"))
        worst, best = own[0], own[-1]
        if worst.blocks < best.blocks and worst.limit_bytes == best.limit_bytes:
            notes.add(
                "times",
                backend=backend,
                limit=format_bytes(best.limit_bytes),
                most=best.blocks,
                least=worst.blocks,
                best=setting(best),
                worst=setting(worst),
                times=best.parameters / worst.parameters,
            )


def setting(row: LargestRow) -> str:
    """Return ZeRO stage and recomputation of a row as text, e.g. ``zero = 3, recompute = full``."""
    return f"zero = {row.zero}, recompute = {row.recompute}"


TOPIC = ReportSection("largest", 16, evidence, findings, "table-largest", when=rows)
