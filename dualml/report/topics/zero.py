"""ZeRO: memory of ranks that shard state, gradients and weights, compared with the closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Cell, Column, Item
from dualml.report.closed_memory import CLOSED_FORM_PARTS, MIB
from dualml.report.columns import Row, number, table
from dualml.report.figure import Axis, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure, shorten_list, stacked_bars
from dualml.report.sharded_arms import (
    ShardingResult,
    has_sharded_arms,
    sharding_results,
    sharding_verdict,
)
from dualml.report.topics import ReportSection
from dualml.report.topics.device_memory import PARTS

#: Name of the series of values from the closed form.
CLOSED_FORM = "closed"


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield figure and table of the arms with the most ranks, then of all arms."""
    rows = without_wasteful(run)
    most = [r for r in rows if r.n == rows[-1].n]
    for name, each in (("zero", most), ("zero_all", rows)):
        if any(r.total_bytes for r in each):
            yield _figure(run, words, each, name.removeprefix("zero"))
        yield from _table(words, name, each)


def without_wasteful(run: RunData) -> list[ShardingResult]:
    """Return the results of `sharding_results` without arms that reduce gradients by an all-reduce,
    which need the same memory and send more."""
    return [r for r in sharding_results(run) if not r.is_wasteful]


def _table(words: Messages, name: str, rows: Sequence[ShardingResult]) -> Iterator[Block]:
    """Yield a table with a row per arm; backends with equal counts share a row."""
    parts = [number(words, part, words(f"device_memory.{part}"), "memory") for part in PARTS]
    head: list[str | Column] = ["method", "backend", "ranks:count", "shared_out"]
    head += [*parts[: len(CLOSED_FORM_PARTS)], "together:memory", parts[-1], "verdict"]
    alike = dict[tuple[object, ...], list[ShardingResult]]()
    for r in rows:
        kept = r.memory and tuple(r.memory.cell(part) for part in (*CLOSED_FORM_PARTS, "buckets"))
        alike.setdefault((r.arm, kept, bool(r.method_result.trials)), []).append(r)
    yield from table(words, name, head, (_row(same, words) for same in alike.values()))


def _row(same: Sequence[ShardingResult], words: Messages) -> Row:
    """Return the table row of results that are equal on several backends, with bytes in MiB."""
    first, *_ = same
    kept = [first.memory and first.memory.cell(part) for part in (*CLOSED_FORM_PARTS, "buckets")]
    form = first.memory and first.memory.form
    whole = Cell(
        numbers.quantity(first.total_bytes / MIB if first.total_bytes else None),
        note=form.text if form else "",
    )
    return [
        Cell(first.method_result.title(words), note=first.arm),
        words.join([r.backend for r in same]),
        first.n,
        first.format_sharded_parts(words) or None,
        *kept[:-1],
        whole,
        kept[-1],
        sharding_verdict(same, words),
    ]


def _figure(run: RunData, words: Messages, rows: Sequence[ShardingResult], suffix: str) -> Figure:
    """Return a figure with a bar per arm, for the rank that holds most of each component, with a
    mark at the closed form; a panel per backend."""
    backends = [b for b in run.backends if any(r.backend == b and r.total_bytes for r in rows)]
    panels = []
    for backend in backends:
        own = [r for r in rows if r.backend == backend and r.total_bytes]
        marks = list[Mark]()
        for y, r in enumerate(own):
            parts = {part: (r.max_bytes(part) or 0) / MIB for part in CLOSED_FORM_PARTS}
            marks += stacked_bars(y, parts, text=numbers.quantity(sum(parts.values())))
        known = [(y, r.closed_form_bytes / MIB) for y, r in enumerate(own) if r.closed_form_bytes]
        marks.append(
            LineMark(
                [x for _, x in known],
                [y for y, _ in known],
                SeriesId(series=CLOSED_FORM),
                joined=False,
            )
        )
        down = Axis(names=[r.arm for r in own], grid=False)
        panels.append(
            Panel(
                marks, Axis(words("axis.kept_bytes"), low=0), down, backend, height=22.0 * len(own)
            )
        )
    look = legend.series(words, "device_memory", {part: PARTS[part] for part in CLOSED_FORM_PARTS})
    mark = LegendEntry(
        "series", CLOSED_FORM, words("zero.closed"), color="black", marker="diamond", hollow=True
    )
    said = ", ".join(
        f"{r.arm} {r.backend} {numbers.quantity(r.total_bytes / MIB)}"
        for r in rows
        if r.total_bytes
    )
    return build_figure(
        words,
        "zero",
        panels,
        [*look, mark],
        {"values": said},
        name=f"zero{suffix}",
        columns=len(panels),
        share_x="all",
    )


# --- sentences ------------------------------------------------------------------------------------


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return the memory that sharding saves, whether it matches the closed form, the buffers, and
    how many arms equal one rank."""
    notes, rows = Notes(words, "zero", "figure-zero_all"), without_wasteful(run)
    for backend in run.backends:
        own = [r for r in rows if r.is_dualml and r.backend == backend and r.precision == "fp32"]
        for n in dict.fromkeys(r.n for r in own if r.sharded_parts):
            whole = next((r.total_bytes for r in own if r.n == n and not r.sharded_parts), None)
            shares = {
                r.arm: r.total_bytes / whole
                for r in own
                if whole and r.n == n and r.sharded_parts and r.total_bytes
            }
            if whole and shares:
                notes.add_per_backend(backend, "held", n=n, whole=whole, shares=shares)
    notes.add_collected()
    judged = [r.memory.form for r in rows if r.is_dualml and r.memory and r.memory.form]
    if judged:
        exact = sum(not form.differences for form in judged)
        notes.add("exact", len(judged), k=exact, n=len(judged))
    notes.set_anchor("table-zero")
    for backend in run.backends:
        _add_buffers(
            notes,
            [
                r
                for r in rows
                if r.backend == backend and len(r.sharded_parts) == len(CLOSED_FORM_PARTS)
            ],
        )
    equal = [
        r.method_result.verdict == "equal"
        for r in sharding_results(run)
        if r.method_result.verdict and r.n > 1
    ]
    if equal:
        notes.add("equal", len(equal), k=sum(equal), n=len(equal))
    absent = [r for r in rows if not r.method_result.trials]
    if absent:
        arms = [f"{r.arm} ({r.backend})" for r in absent]
        notes.add_warning("absent", len(absent), n=len(absent), arms=shorten_list(arms, words))
    return notes


def _add_buffers(notes: Notes, rows: Sequence[ShardingResult]) -> None:
    """Add the transient buffers of arms that shard everything, engines compared with dualml."""
    known = {
        n: [r for r in rows if r.n == n and r.max_bytes("buckets") is not None]
        for n in dict.fromkeys(r.n for r in rows)
    }
    for n, each in known.items():
        if any(r.is_dualml for r in each) and any(not r.is_dualml for r in each):
            values = {r.arm: r.max_bytes("buckets") for r in each}
            notes.add("buckets", backend=each[0].backend, n=n, values=values)


TOPIC = ReportSection(
    "zero", 11, evidence, findings, priority=lambda run: 95, when=has_sharded_arms
)
