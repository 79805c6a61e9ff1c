"""A slow link: its effect on a model split by layer and on one split inside layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Cell
from dualml.report.columns import table
from dualml.report.figure import Axis, Figure, Mark, Panel
from dualml.report.notes import Notes
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.topics import ReportSection

Pairs = Sequence[tuple[SplitArm, SplitArm]]
HEAD = (
    "`arm`",
    "backend",
    "crossed:bytes_update",
    "calls:count",
    "without:milliseconds",
    "with:milliseconds",
    "slowdown:relative",
    "talk_without:milliseconds",
    "talk_with:milliseconds",
)


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figure and the table of split arms with a slow rank or link beside the same arms
    without it."""
    splits = Splits(run)
    pairs = splits.straggler_pairs()
    yield from times.crowding_notices(run, (arm for pair in pairs for arm in pair), words)
    backends = times.timed_backends(splits)
    if any(times.by_rank(run, arm.name, b) for arm, _ in pairs for b in backends):
        yield _figure(run, pairs, backends, words)
    rows = [
        [
            Cell(arm.name, note=ranks.handicap_text(run, arm.name, words)),
            *(b, arm.crossing_bytes or None, arm.crossing_calls if arm.crossing_bytes else None),
            *(
                times.step_seconds(run, base.name, b),
                step,
                times.step_ratio(run, arm.name, b, base.name),
            ),
            *(times.waiting_seconds(run, each.name, b) for each in (base, arm)),
        ]
        for arm, base in pairs
        for b in run.backends
        if (step := times.step_seconds(run, arm.name, b)) is not None
    ]
    yield from table(words, "slow-link", HEAD, rows)


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


def findings(run: RunData, words: Messages) -> Notes:
    """Return the slowdown of each split with a slow rank, and the bytes that it sends."""
    notes, splits = Notes(words, "slow_link", "figure-slow-link"), Splits(run)
    for arm, base in splits.straggler_pairs():
        handicap = ranks.handicap_text(run, arm.name, words)
        items = (_item(notes, arm, base, b) for b in times.timed_backends(splits))
        notes.add_joined("costs", items, arm=arm, how=arm.describe(words), handicap=handicap)
    return notes


def _item(notes: Notes, arm: SplitArm, base: SplitArm, backend: str) -> str:
    """Return seconds of an update with and without the slow link and their ratio as text; empty if
    one is unknown."""
    before, after = (times.step_seconds(arm.run, each.name, backend) for each in (base, arm))
    ratio = times.step_ratio(arm.run, arm.name, backend, base.name)
    return notes.format_part("item", backend=backend, times=ratio, before=before, after=after)


TOPIC = ReportSection("slow_link", 660, evidence, findings)
