"""A slow link: its effect on a model split by layer and on one split inside layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Cell
from dualml.report.columns import Columns
from dualml.report.figure import Axis, Figure, Mark, Panel
from dualml.report.notes import Notes
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.topics import table_section

Pairs = Sequence[tuple[SplitArm, SplitArm]]


class SlowSplit(NamedTuple):
    """A split arm with a slow rank or link and the same arm without it, on a backend."""

    arm: SplitArm
    base: SplitArm
    backend: str


def slow_splits(run: RunData) -> list[SlowSplit]:
    """Return the arms with a slow rank or link on every backend where their update was timed."""
    every = (SlowSplit(*p, b) for p in Splits(run).straggler_pairs() for b in run.backends)
    return [s for s in every if times.step_seconds(run, s.arm.name, s.backend) is not None]


def columns(run: RunData, words: Messages, records: Sequence[SlowSplit]) -> Columns[SlowSplit]:
    """Return the columns of traffic, and of times without and with the slow rank or link."""
    sent = ("crossed:bytes_update", "calls:count")
    return {
        "`arm`": lambda s: Cell(s.arm.name, note=ranks.handicap_text(run, s.arm.name, words)),
        "backend": lambda s: s.backend,
        sent: lambda s: (
            (s.arm.crossing_bytes, s.arm.crossing_calls) if s.arm.crossing_bytes else (None, None)
        ),
        "without:milliseconds": lambda s: times.step_seconds(run, s.base.name, s.backend),
        "with:milliseconds": lambda s: times.step_seconds(run, s.arm.name, s.backend),
        "slowdown:relative": lambda s: times.step_ratio(run, s.arm.name, s.backend, s.base.name),
        "talk_without:milliseconds": lambda s: times.waiting_seconds(run, s.base.name, s.backend),
        "talk_with:milliseconds": lambda s: times.waiting_seconds(run, s.arm.name, s.backend),
    }


def figures(run: RunData, words: Messages, records: Sequence[SlowSplit]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, and the figure of the parts of an update."""
    splits = Splits(run)
    pairs, backends = splits.straggler_pairs(), times.timed_backends(splits)
    yield from times.crowding_notices(run, (arm for pair in pairs for arm in pair), words)
    if any(times.by_rank(run, arm.name, b) for arm, _ in pairs for b in backends):
        yield _figure(run, pairs, backends, words)


def _figure(run: RunData, pairs: Pairs, backends: Sequence[str], words: Messages) -> Figure:
    """Return a figure of the parts of an update, means over the ranks: without the slow rank, and
    below it with it."""
    names = [each.name for arm, base in pairs for each in (base, arm)]
    ticks = [(y + 0.25 * (y // 2), name) for y, name in enumerate(names)]
    last = ticks[-1][0]
    x = Axis(words("axis.update_ms"), low=0)
    y_axis = Axis(low=-0.6, high=last + 0.6, ticks=ticks, flip=True, grid=False)
    panels = []
    for backend in backends:
        marks: list[Mark] = []
        for y, name in ticks:
            parts = times.average(times.by_rank(run, name, backend))
            text = numbers.ms(sum(parts.values())) if parts else ""
            marks += times.stacked_bars(y, parts, 1e3, text)
        panels.append(Panel(marks, x, y_axis, backend, height=26.0 * (last + 1.2)))
    bases = {arm.name: base.name for arm, base in pairs}

    def slowdown(arm: str, backend: str) -> str:
        ratio = times.step_ratio(run, arm, backend, bases[arm])
        return numbers.factor(ratio and ratio.mean)

    alt = words("alt.slowdown", values=times.format_values(bases, backends, slowdown))
    return Figure(
        "slow-link",
        words("slow_link.figure"),
        alt,
        panels,
        times.part_keys(words),
        columns=len(panels),
        share_y="all",
    )


def findings(notes: Notes, run: RunData, records: Sequence[SlowSplit]) -> None:
    """Add the slowdown of each split with a slow rank, and the bytes that it sends."""
    words, splits = notes.words, Splits(run)
    for arm, base in splits.straggler_pairs():
        handicap = ranks.handicap_text(run, arm.name, words)
        items = (_item(notes, arm, base, b) for b in times.timed_backends(splits))
        notes.add_joined("costs", items, arm=arm, how=arm.describe(words), handicap=handicap)


def _item(notes: Notes, arm: SplitArm, base: SplitArm, backend: str) -> str:
    """Return seconds of an update with and without the slow link and their ratio as text; empty if
    one is unknown."""
    before, after = (times.step_seconds(arm.run, each.name, backend) for each in (base, arm))
    ratio = times.step_ratio(arm.run, arm.name, backend, base.name)
    return notes.format_part("item", backend=backend, times=ratio, before=before, after=after)


TOPIC = table_section(
    "slow_link",
    660,
    reads=slow_splits,
    columns=columns,
    figures=figures,
    findings=findings,
    table="slow-link",
    anchor="figure-slow-link",
)
