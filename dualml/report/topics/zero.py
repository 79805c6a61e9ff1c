"""ZeRO: memory of ranks that shard state, gradients and weights, compared with the closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Cell
from dualml.report.closed_memory import CLOSED_FORM_PARTS, MIB, mib
from dualml.report.columns import Columns, number, tabulate
from dualml.report.figure import Figure, Mark
from dualml.report.notes import Notes
from dualml.report.presentation import (
    bar_panels,
    build_figure,
    closed_form_mark,
    shorten_list,
    stacked_bars,
)
from dualml.report.sharded_arms import (
    ShardingResult,
    has_sharded_arms,
    sharding_results,
    sharding_verdict,
)
from dualml.report.topics import ReportSection


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
    """Yield a table with a row per arm, with bytes in MiB; backends with equal counts share a
    row."""
    alike = dict[tuple[object, ...], list[ShardingResult]]()
    for r in rows:
        kept = r.memory and tuple(r.memory.cell(part) for part in (*CLOSED_FORM_PARTS, "buckets"))
        alike.setdefault((r.arm, kept, bool(r.trials)), []).append(r)
    *closed, buckets = (
        number(words, part, words(f"device_memory.{part}"), "memory")
        for part in (*CLOSED_FORM_PARTS, "buckets")
    )

    def memory_cell(r: ShardingResult) -> Cell:
        form = r.memory and r.memory.form
        text = numbers.quantity(mib(r.total_bytes or None))
        return Cell(text, note=form.text if form else "")

    read: Columns[Sequence[ShardingResult]] = {
        "method": lambda s: Cell(s[0].title(words), note=s[0].arm),
        "backend": lambda s: words.join([r.backend for r in s]),
        "ranks:count": lambda s: s[0].n,
        "shared_out": lambda s: s[0].format_sharded_parts(words) or None,
        tuple(closed): lambda s: [
            s[0].memory and s[0].memory.cell(part) for part in CLOSED_FORM_PARTS
        ],
        "together:memory": lambda s: memory_cell(s[0]),
        buckets: lambda s: s[0].memory and s[0].memory.cell("buckets"),
        "verdict": lambda s: sharding_verdict(s, words),
    }
    yield from tabulate(words, name, alike.values(), read)


def _figure(run: RunData, words: Messages, rows: Sequence[ShardingResult], suffix: str) -> Figure:
    """Return a figure with a bar per arm, for the rank that holds most of each component, with a
    mark at the closed form; a panel per backend."""
    rows = [r for r in rows if r.total_bytes]

    def bars(y: float, r: ShardingResult) -> Iterator[Mark]:
        parts = {part: (r.max_bytes(part) or 0) / MIB for part in CLOSED_FORM_PARTS}
        return stacked_bars(y, parts, text=numbers.quantity(sum(parts.values())))

    def closed_marks(own: Sequence[ShardingResult]) -> Iterator[Mark]:
        yield closed_form_mark(mib(r.closed_form_bytes) for r in own)

    backends = [b for b in run.backends if any(r.backend == b for r in rows)]
    panels = bar_panels(rows, backends, words("axis.kept_bytes"), bars, closed_marks)
    parts = legend.series(words, "device_memory", "memory", CLOSED_FORM_PARTS)
    look = [*parts, legend.closed_form(words)]
    said = ", ".join(f"{r.arm} {r.backend} {numbers.quantity(mib(r.total_bytes))}" for r in rows)
    return build_figure(
        words, "zero", panels, look, {"values": said}, name=f"zero{suffix}", share_x="all"
    )


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData) -> None:
    """Add the memory that sharding saves, whether it matches the closed form, the buffers, and
    how many results, one per arm and backend, equal one rank."""
    words, rows = notes.words, without_wasteful(run)
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
    equal = [r.verdict == "equal" for r in sharding_results(run) if r.verdict and r.n > 1]
    if equal:
        notes.add("equal", len(equal), k=sum(equal), n=len(equal))
    absent = [r for r in rows if not r.trials]
    if absent:
        arms = [f"{r.arm} ({r.backend})" for r in absent]
        notes.add_warning("absent", len(absent), n=len(absent), arms=shorten_list(arms, words))


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
    "zero",
    11,
    evidence,
    findings,
    "figure-zero_all",
    priority=lambda run: 95,
    when=has_sharded_arms,
)
