"""A slow link: what it does to a split by layer and to one inside the layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report import ranks
from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import columns
from dualml.report.figure import Axis, Figure, Mark, Panel
from dualml.report.notes import Notes
from dualml.report.splits import shown, times
from dualml.report.splits.arms import SplitArm, Splits
from dualml.report.spread import cell
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

Pairs = Sequence[tuple[SplitArm, SplitArm]]


def evidence(run: Run, words: Words) -> Iterator[Block]:
    splits = Splits(run)
    pairs = splits.slowed()
    backends = times.compared(splits)
    yield from shown.crowded(run, (arm for pair in pairs for arm in pair), words)
    if any(times.by_rank(run, arm.name, b) for arm, _ in pairs for b in backends):
        yield _figure(run, pairs, backends, words)
    rows = [
        _row(run, arm, base, b, words)
        for arm, base in pairs
        for b in run.backends
        if times.step(run, arm.name, b) is not None
    ]
    head = columns(
        words,
        *("`arm`", "backend", "crossed:bytes_update", "calls:count"),
        *("without:milliseconds", "with:milliseconds", "slowdown:relative"),
        *("talk_without:milliseconds", "talk_with:milliseconds"),
    )
    yield Table("slow-link", words("table.slow_link"), head, rows)


def _row(run: Run, arm: SplitArm, base: SplitArm, backend: str, words: Words) -> list[Cell | str]:
    nbytes = arm.crossing_bytes
    return [
        Cell(arm.name, note=ranks.handicap_text(run, arm.name, words)),
        backend,
        numbers.nbytes(nbytes or None),
        numbers.quantity(arm.crossing_calls) if nbytes else numbers.NONE,
        cell(times.step(run, base.name, backend), 1e3),
        cell(times.step(run, arm.name, backend), 1e3),
        cell(times.against(run, arm.name, backend, base.name), text=numbers.factor),
        *(times.milliseconds(times.waiting(run, a.name, backend)) for a in (base, arm)),
    ]


def _figure(run: Run, pairs: Pairs, backends: Sequence[str], words: Words) -> Figure:
    """Means over the ranks: without the slow rank, and below it with."""
    names = [name.name for arm, base in pairs for name in (base, arm)]
    places = [y + 0.25 * (y // 2) for y in range(len(names))]
    panels = []
    for backend in backends:
        marks: list[Mark] = []
        for y, name in zip(places, names, strict=True):
            parts = times.average(times.by_rank(run, name, backend))
            text = numbers.quantity(1e3 * sum(parts.values())) if parts else ""
            marks += shown.stacked(y, parts, 1e3, text)
        ticks = list(zip(places, names, strict=True))
        y_axis = Axis(low=-0.6, high=places[-1] + 0.6, ticks=ticks, flip=True, grid=False)
        x = Axis(words("axis.update_ms"), low=0)
        panels.append(Panel(marks, x, y_axis, backend, height=26.0 * (places[-1] + 1.2)))
    bases = {arm.name: base.name for arm, base in pairs}
    values = shown.listed(bases, backends, lambda name, b: _ratio(run, name, b, bases[name]))
    return Figure(
        "slow-link",
        words("slow_link.figure"),
        words("alt.slowdown", values=values),
        panels,
        shown.part_keys(words),
        columns=len(panels),
        share_y="all",
    )


def _ratio(run: Run, arm: str, backend: str, base: str) -> str:
    ratio = times.against(run, arm, backend, base)
    return numbers.factor(ratio.mean) if ratio else numbers.NONE


def findings(run: Run, words: Words) -> Notes:
    """By layer against inside: by which factor, and what crosses."""
    notes, splits = Notes(words, "slow_link", "figure-slow-link"), Splits(run)
    for arm, base in splits.slowed():
        items = (_item(words, arm, base, b) for b in times.compared(splits))
        values = shown.joined(words, items)
        if values:
            notes.say(
                "costs",
                arm=arm.name,
                how=arm.how(words),
                handicap=ranks.handicap_text(run, arm.name, words),
                values=values,
                size=numbers.nbytes(arm.crossing_bytes),
                calls=numbers.quantity(arm.crossing_calls),
            )
    return notes


def _item(words: Words, arm: SplitArm, base: SplitArm, backend: str) -> str:
    ratio = _ratio(arm.run, arm.name, backend, base.name)
    if ratio == numbers.NONE:
        return ""
    before, after = (times.update_ms(arm.run, each.name, backend) for each in (base, arm))
    return words("say.slow_link.item", backend=backend, times=ratio, before=before, after=after)


TOPIC = Topic("slow_link", 660, evidence, findings)
