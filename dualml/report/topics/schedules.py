"""Schedules of strategies drawn: ranks as rows, steps as columns, every message as an arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report import legend, ranks
from dualml.report.blocks import Block, RowBlock
from dualml.report.figure import WIDTH, Arrow, Axis, Figure, Mark, Panel, ReferenceLine, SeriesId
from dualml.report.topics import ReportSection

if TYPE_CHECKING:
    from dualml.parallel.aggregation import CollectiveSchedule, Transfer

MAX_DRAWN_RANKS = 8  # ranks that are still readable
COLUMN = {False: 60, True: 86}  # pixels of a step, wider where chunks are named


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield one row with a drawing of each schedule that the run's strategies follow, equal ones
    once; nothing if none has steps."""
    from dualml.parallel.aggregation import STRATEGIES

    alike: dict[CollectiveSchedule, list[str]] = {}
    for name in ranks.strategies(run):
        schedule = STRATEGIES[name]().schedule(_ranks(run, name)) if name in STRATEGIES else None
        if schedule and schedule.steps:
            alike.setdefault(schedule, []).append(name)
    if alike:
        yield RowBlock([_figure(schedule, names, words) for schedule, names in alike.items()])


def _ranks(run: RunData, name: str) -> int:
    """Return the largest number of ranks, at most `MAX_DRAWN_RANKS`, with which the strategy was
    used; 4 if it was only used with more or with one."""
    used = {
        ranks.world_size(run, arm)
        for arm in run.arms
        if ranks.strategy(run, arm) == name or name in (run.arms[arm].get("strategies") or ())
    }
    return max((n for n in used if 1 < n <= MAX_DRAWN_RANKS), default=4)


def _figure(schedule: CollectiveSchedule, names: list[str], words: Messages) -> Figure:
    """Return the drawing of a schedule that the strategies ``names`` share."""
    n, steps = schedule.ranks, len(schedule.steps)
    several = schedule.chunks > 1
    marks: list[Mark] = [ReferenceLine(rank) for rank in range(n)]
    marks += [ReferenceLine(k - 0.5, axis="x", faint=True) for k in range(1, steps)]
    messages = [(k, message) for k, step in enumerate(schedule.steps) for message in step]
    marks += [_message(k, message, several) for k, message in messages]
    alt = words("alt.schedule", names=names, ranks=n, steps=steps, messages=len(messages))
    key = "chunks" if several else "whole"
    caption = words(f"figure.schedule.{key}", names=names, n=n, k=schedule.chunks)
    x = Axis(words("axis.step"), names=[str(k + 1) for k in range(steps)])
    y = Axis(words("axis.rank"), names=[str(rank) for rank in range(n)])
    return Figure(
        f"schedule-{names[0].replace('_', '-')}",
        caption,
        alt,
        [Panel(marks, x, y, height=34 * n)],
        legend.series(words, "figure.then", "received"),
        width=min(WIDTH, max(320, 80 + steps * COLUMN[several])),
    )


def _message(step: int, message: Transfer, named: bool) -> Arrow:
    """Return an arrow from the sender's row to the receiver's, across the column of the step. The
    name stands left of the dot, where no arrow passes."""
    start = step - 0.5 + (0.2 + 0.05 * (len(message.name) - 1) if named else 0.12)
    name = message.name if named else ""
    owner = SeriesId(series=message.op)
    return Arrow(start, message.source, step + 0.4, message.target, owner, name, dot=True)


TOPIC = ReportSection("schedules", 40, evidence, group="principle")
