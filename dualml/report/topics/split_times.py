"""Breakdown of a split update by rank, beside the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Cell, Table
from dualml.report.columns import Columns, Row, number, table, tabulate
from dualml.report.figure import Axis, Bar, Figure, Mark, Panel, ReferenceLine
from dualml.report.measures import slug
from dualml.report.notes import Notes
from dualml.report.scaling import PARTS
from dualml.report.splits import times
from dualml.report.splits.arms import SplitArm, Splits, model_of, without_straggler
from dualml.report.topics import ReportSection
from dualml.report.topics.splits import fastest_splits

BAR_PIXELS, ARM_GAP_BARS = 17.0, 0.45  # height of a bar; gap between two arms, in bars
SHARES = 6  # most arms in a sentence
#: Parts of an update in which a rank does not compute.
IDLE_PARTS = ("wait", "transfer", "rest")


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield a figure per whole-model arm with the parts of its update and of those of the arms that
    split it (the first successful one of each way, without a slow rank); then the table of the
    times of whole and split arms, with the ratio to the whole model, and the table of parts."""
    splits = Splits(run)
    yield from times.crowding_notices(run, splits, words)
    for base, members in splits.families.items():
        # the first arm of each way to split; others differ in settings that have their own topics
        first: dict[object, SplitArm] = {}
        for a in without_straggler(members):
            if run.select(a.name):
                key = (a.plan_kind, a.schedule, a.size, a.split.arrival, str(a.split.layers))
                first.setdefault(key, a)
        arms = list(first.values())
        if any(times.by_rank(run, a.name, b) for a in arms for b in times.timed_backends(splits)):
            yield _figure(splits, base, arms, words)
    yield from _whole_table(splits, words)
    known = {
        (arm.name, b): parts
        for arm in splits
        for b in run.backends
        if (parts := times.average(times.by_rank(run, arm.name, b)))
    }
    read: Columns[tuple[str, str]] = {
        ("`arm`", "backend"): lambda at: at,
        "step:milliseconds": lambda at: _step_cell(run, *at).text,
        tuple(f"part_{k}:milliseconds" for k in PARTS): lambda at: [known[at][k] for k in PARTS],
    }
    yield from tabulate(words, "split-parts", known, read)


def _step_cell(run: RunData, arm: str, backend: str) -> Cell:
    """Return the cell of the milliseconds of an update, with a star if ranks took turns on cores; a
    dash if unknown."""
    step = times.step_seconds(run, arm, backend)
    cell = step.cell(numbers.ms) if step else Cell(numbers.NO_VALUE)
    return replace(cell, text=times.mark_oversubscribed(cell.text, run, arm, backend))


def _whole_table(splits: Splits, words: Messages) -> Iterator[Table]:
    """Yield a table with the whole-model arm before those that split it; two columns per
    backend."""
    run = splits.run
    backends = [b for b in run.backends if any(run.select(arm.name, b) for arm in splits)]
    measured = [
        number(words, f"{key}-{b}", words(f"column.split_{key}", backend=b), unit)
        for b in backends
        for key, unit in (("step", "milliseconds"), ("ratio", "relative"))
    ]
    rows: list[Row] = []
    for base, members in splits.families.items():
        hows = {base: words("splits.whole")} if base else {}
        hows |= {arm.name: arm.describe(words) for arm in members}
        for name in filter(run.select, hows):
            pairs = (
                (_step_cell(run, name, b), times.step_ratio(run, name, b, base)) for b in backends
            )
            cells = [c for step, r in pairs for c in (step, None if name == base else r)]
            end = [times.worst_verdict_cell(run, name, words)] if run.serial else []
            size = run.settings[name].world_size
            rows.append([name, model_of(run, name), hows[name], size, *cells, *end])
    verdict = ["split_verdict"] if run.serial else []
    head = ("`arm`", "`model`", "split_how", "ranks:count")
    yield from table(words, "split-whole", [*head, *measured, *verdict], rows)


def _figure(splits: Splits, base: str | None, arms: Sequence[SplitArm], words: Messages) -> Figure:
    """Return a figure of the parts of an update: a bar for the whole model, and one for each rank
    of the arms that split it."""
    run, backends = splits.run, times.timed_backends(splits)
    sizes = {**({base: 1} if base else {}), **{arm.name: arm.size for arm in arms}}
    tops, top = {}, 0.0
    for name, size in sizes.items():
        tops[name] = top
        top += size + ARM_GAP_BARS
    ticks = [(tops[name] + (size - 1) / 2, name) for name, size in sizes.items()]
    x = Axis(words("axis.update_ms"), low=0)
    y = Axis(low=-0.7, high=top - ARM_GAP_BARS - 0.3, ticks=ticks, flip=True, grid=False)
    panels = []
    for backend in backends:
        marks: list[Mark] = []
        for middle, name in ticks:
            step = times.step_seconds(run, name, backend)
            if step is not None:
                marks += (
                    [ReferenceLine(1e3 * step.mean, axis="x", dashed=True)] if name == base else []
                )
                rows = times.by_rank(run, name, backend) or [{"whole": step.mean}]
                first = middle if len(rows) == 1 else tops[name]
                for rank, parts in enumerate(rows):
                    marks += times.stacked_bars(first + rank, parts, 1e3, height=0.84)
                end = 1e3 * max(sum(parts.values()) for parts in rows)
                marks.append(Bar(middle, 0.0, left=end, text=_step_cell(run, name, backend).text))
        panels.append(Panel(marks, x, y, backend, height=BAR_PIXELS * (top + 0.4)))
    notes = [words("split_times.figure", model=arms[0].model, arm=base or numbers.NO_VALUE)]
    if any(times.is_oversubscribed(run, arm.name, b) for arm in arms for b in backends):
        notes.append(words("figure.take_turns"))
    return Figure(
        f"split-{slug(base or arms[0].name)}",
        words.join_sentences(notes),
        times.update_alt(run, sizes, backends, words),
        panels,
        times.part_keys(words),
        columns=len(panels),
        share_y="all",
    )


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add, for each way to split a model, the part of an update besides computing that takes the
    largest share, and a warning if MindSpore ran, whose backward passes repeat work."""
    splits = Splits(run)
    for base, members in splits.families.items():
        # largest share of time besides computing, for the first arm of each way to split
        first: dict[object, SplitArm] = {}
        for arm in without_straggler(members):
            if run.select(arm.name):
                first.setdefault((arm.plan_kind, arm.schedule if arm.is_pipelined else ""), arm)
        arms = list(first.values())[:SHARES]
        if arms:
            notes.set_anchor(f"figure-split-{slug(base or arms[0].name)}")
            notes.add_joined(
                "besides", (_format_overheads(notes, b, arms) for b in times.timed_backends(splits))
            )
    notes.set_anchor("")
    again = [b for b in run.backends if run.framework(b) == "mindspore"]
    if any(run.select(arm.name, b) for arm in splits for b in again):
        notes.add_warning("again", backends=again)


def _format_overheads(notes: Notes, backend: str, arms: Sequence[SplitArm]) -> str:
    """Return for each arm the part of an update besides computing that takes the largest share, as
    text; empty if nothing was recorded."""
    shares = []
    for arm in arms:
        parts = times.average(times.by_rank(arm.run, arm.name, backend))
        total = sum(parts.values())
        if total:
            part = max(IDLE_PARTS, key=lambda part: parts[part])
            shares.append(notes.format_part(part, arm=arm.name, share=parts[part] / total))
    values = notes.words("list.comma").join(shares)
    return notes.format_part("backend", backend=backend, values=values) if shares else ""


#: Leads if there are no whole models to compare with.
TOPIC = ReportSection(
    "split_times",
    605,
    evidence,
    findings,
    priority=lambda run: 0 if fastest_splits(Splits(run)) else 70,
)
