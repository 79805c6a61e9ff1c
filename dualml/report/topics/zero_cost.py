"""Costs of sharding: bytes sent in an update, by the closed form and on the wire, and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Cell, Item
from dualml.report.closed_memory import CLOSED_FORM_PARTS, MIB
from dualml.report.columns import table
from dualml.report.confidence import MeanInterval, paired_ratio
from dualml.report.figure import Axis, Bar, Figure, LegendEntry, LineMark, Mark, Panel, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import build_figure
from dualml.report.results import ArmResult
from dualml.report.scaling_families import crowding_notices
from dualml.report.sharded_arms import ShardingResult, has_sharded_arms, sharding_results
from dualml.report.topics import ReportSection

#: Series of bytes sent → colour.
WIRE_COLORS = {"wire": "steel", "wire_more": "brick"}


def multi_rank_results(run: RunData) -> list[ShardingResult]:
    """Return those of `sharding_results` with several ranks and a successful trial."""
    return [r for r in sharding_results(run) if r.n > 1 and r.method_result.trials]


def matching_replicas(r: ShardingResult, rows: Sequence[ShardingResult]) -> ShardingResult | None:
    """Return dualml's own arm on the same backend with as many ranks that shards nothing, in the
    same precision; None without one."""
    same = r.n, r.backend, r.precision
    plain = (x for x in rows if x.is_dualml and not x.sharded_parts)
    return next((x for x in plain if (x.n, x.backend, x.precision) == same), None)


def step_ratio(r: ShardingResult, other: ShardingResult | None) -> MeanInterval | None:
    """Return the seconds of an update relative to another arm's, None if unknown."""
    if other is None:
        return None
    return paired_ratio(
        *(ArmResult(x.method_result.run, x.arm, x.backend).steps for x in (r, other))
    )


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the figure and the table of bytes sent in an update, by the closed form and on the
    wire, and of its time, after a notice if ranks shared cores."""
    rows = multi_rank_results(run)
    yield from crowding_notices(run, words, [r.arm for r in rows])
    if any(r.method_result.sent_bytes for r in rows):
        yield _figure(run, words, rows)
    head = (
        "method",
        "`arm`",
        "backend",
        "ranks:count",
        "shared_out",
        "sent_closed:bytes_update",
        "sent_wire:bytes_update",
        "sent_ratio:relative",
        "step:milliseconds",
        "replicas_times:relative",
    )
    cells = [
        [
            r.method_result.title(words),
            r.arm,
            r.backend,
            r.n,
            Cell(r.format_sharded_parts(words) or numbers.NO_VALUE, note=r.gradient_reduction),
            r.method_result.closed_form_sent_bytes,
            r.method_result.sent_bytes,
            r.method_result.sent_bytes / r.method_result.closed_form_sent_bytes
            if r.method_result.sent_bytes and r.method_result.closed_form_sent_bytes
            else None,
            ArmResult(run, r.arm, r.backend).step,
            step_ratio(r, matching_replicas(r, rows)),
        ]
        for r in rows
    ]
    yield from table(words, "zero_price", head, cells)


def _figure(run: RunData, words: Messages, rows: Sequence[ShardingResult]) -> Figure:
    """Return a figure with a bar for the bytes sent and a mark for the closed form; all-reduce
    variants in another colour."""
    backends = [
        b for b in run.backends if any(r.backend == b and r.method_result.sent_bytes for r in rows)
    ]
    panels = []
    for backend in backends:
        own = [r for r in rows if r.backend == backend and r.method_result.sent_bytes]
        marks: list[Mark] = [
            Bar(
                y,
                r.method_result.sent_bytes / MIB,
                SeriesId(series=bar_series(r)),
                text=numbers.quantity(r.method_result.sent_bytes / MIB),
            )
            for y, r in enumerate(own)
            if r.method_result.sent_bytes
        ]
        known = [
            (y, r.method_result.closed_form_sent_bytes / MIB)
            for y, r in enumerate(own)
            if r.method_result.closed_form_sent_bytes
        ]
        marks.append(
            LineMark(
                [x for _, x in known],
                [y for y, _ in known],
                SeriesId(series="closed"),
                joined=False,
            )
        )
        down = Axis(names=[r.arm for r in own], grid=False)
        panels.append(
            Panel(marks, Axis(words("axis.sent"), low=0), down, backend, height=22.0 * len(own))
        )
    used = {bar_series(r) for r in rows}
    look = [
        LegendEntry("series", s, words(f"zero_price.{s}"), color=c)
        for s, c in WIRE_COLORS.items()
        if s in used
    ]
    mark = LegendEntry(
        "series", "closed", words("zero.closed"), color="black", marker="diamond", hollow=True
    )
    said = ", ".join(
        f"{r.arm} {r.backend} {numbers.nbytes(r.method_result.sent_bytes)}" for r in rows
    )
    return build_figure(
        words, "zero_price", panels, [*look, mark], {"values": said}, columns=len(panels)
    )


def bar_series(r: ShardingResult) -> str:
    """Return the series of a result's bar, ``wire_more`` if it sends more bytes than it needs, else
    ``wire``."""
    return "wire_more" if r.is_wasteful else "wire"


# --- sentences ------------------------------------------------------------------------------------


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return the bytes and the time of sharding relative to replicas, and bytes on the wire
    relative to the closed form."""
    notes, rows = Notes(words, "zero_price", "figure-zero_price"), multi_rank_results(run)
    for backend in run.backends:
        wrong = (
            _format_wasteful(notes, r, rows) for r in rows if r.is_wasteful and r.backend == backend
        )
        notes.add_joined("wrong", wrong, backend=backend)
    for r in rows:
        base = matching_replicas(r, rows)
        times = step_ratio(r, base)
        if (
            base
            and times
            and len(r.sharded_parts) == len(CLOSED_FORM_PARTS)
            and r.is_dualml
            and not r.is_wasteful
        ):
            sent = [x.method_result.sent_bytes for x in (r, base)]
            if sent[0] and sent[1]:
                notes.add(
                    "weights",
                    arm=r.arm,
                    backend=r.backend,
                    base=base.arm,
                    sent=sent[0] / sent[1],
                    times=times.mean,
                )
    notes.set_anchor("table-zero_price")
    for backend in run.backends:
        ratios = {
            r.arm: r.method_result.sent_bytes / r.method_result.closed_form_sent_bytes
            for r in rows
            if r.backend == backend
            and r.is_dualml
            and r.method_result.sent_bytes
            and r.method_result.closed_form_sent_bytes
        }
        if ratios:
            notes.add(
                "wire",
                backend=backend,
                n=len(ratios),
                low=min(ratios.values()),
                high=max(ratios.values()),
            )
    return notes


def _format_wasteful(notes: Notes, r: ShardingResult, rows: Sequence[ShardingResult]) -> str:
    """Return the all-reduce variant compared with the same arm by reduce-scatter, as text; empty if
    a number is unknown."""
    other = reduce_scatter_partner(r, rows)
    times = step_ratio(r, other)
    if not (
        other
        and times
        and r.method_result.closed_form_sent_bytes
        and other.method_result.closed_form_sent_bytes
        and r.method_result.sent_bytes
        and other.method_result.sent_bytes
    ):
        return ""
    return notes.format_part(
        "wrong_item",
        arm=r.arm,
        other=other.arm,
        times=times.mean,
        closed=r.method_result.closed_form_sent_bytes / other.method_result.closed_form_sent_bytes,
        wire=r.method_result.sent_bytes / other.method_result.sent_bytes,
    )


def reduce_scatter_partner(
    r: ShardingResult, rows: Sequence[ShardingResult]
) -> ShardingResult | None:
    """Return the result on the same backend of the arm that differs only in how gradients are
    reduced, None without one."""
    name = r.method_result.run.contrast.partner(r.arm, vary=("zero_reduce",))
    return next((x for x in rows if (x.arm, x.backend) == (name, r.backend)), None)


TOPIC = ReportSection(
    "zero_price", 12, evidence, findings, priority=lambda run: 70, when=has_sharded_arms
)
