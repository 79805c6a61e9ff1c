"""Costs of sharding: bytes sent in an update, by the closed form and on the wire, and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import legend
from dualml.report.blocks import Block, Cell
from dualml.report.closed_memory import CLOSED_FORM_PARTS, mib
from dualml.report.columns import PLACE, Columns
from dualml.report.confidence import MeanInterval, paired_ratio
from dualml.report.figure import Bar, Mark, SeriesId
from dualml.report.notes import Notes
from dualml.report.presentation import bar_panels, build_figure, closed_form_mark
from dualml.report.scaling_families import crowding_notices
from dualml.report.sharded_arms import ShardingResult, has_sharded_arms, sharding_results
from dualml.report.topics import table_section


def multi_rank_results(run: RunData) -> list[ShardingResult]:
    """Return those of `sharding_results` with several ranks and a successful trial."""
    return [r for r in sharding_results(run) if r.n > 1 and r.trials]


def matching_replicas(r: ShardingResult, rows: Sequence[ShardingResult]) -> ShardingResult | None:
    """Return dualml's own arm on the same backend with as many ranks that shards nothing, in the
    same precision; None without one."""
    same = r.n, r.backend, r.precision
    plain = (x for x in rows if x.is_dualml and not x.sharded_parts)
    return next((x for x in plain if (x.n, x.backend, x.precision) == same), None)


def step_ratio(r: ShardingResult, other: ShardingResult | None) -> MeanInterval | None:
    """Return the seconds of an update relative to another result's, paired by seed, None if
    unknown."""
    return paired_ratio(r.steps, other.steps) if other else None


def columns(
    run: RunData, words: Messages, rows: Sequence[ShardingResult]
) -> Columns[ShardingResult]:
    """Return the columns of bytes sent in an update, by the closed form and on the wire, and of its
    time."""
    return {
        "method": lambda r: r.title(words),
        **PLACE,
        "ranks:count": lambda r: r.n,
        "shared_out": lambda r: Cell(
            r.format_sharded_parts(words) or numbers.NO_VALUE, note=r.gradient_reduction
        ),
        "sent_closed:bytes_update": lambda r: r.closed_form_sent_bytes,
        "sent_wire:bytes_update": lambda r: r.sent_bytes,
        "sent_ratio:relative": lambda r: r.sent_ratio,
        "step:milliseconds": lambda r: r.step,
        "replicas_times:relative": lambda r: step_ratio(r, matching_replicas(r, rows)),
    }


def figures(run: RunData, words: Messages, rows: Sequence[ShardingResult]) -> Iterator[Block]:
    """Yield a notice if ranks shared cores, and the figure with a bar for the bytes sent and a mark
    for the closed form; all-reduce variants in another colour."""
    yield from crowding_notices(run, words, [r.arm for r in rows])
    sent = [r for r in rows if r.sent_bytes]
    if not sent:
        return

    def bars(y: float, r: ShardingResult) -> Iterator[Mark]:
        size = mib(r.sent_bytes) or 0.0
        yield Bar(y, size, SeriesId(series=bar_series(r)), text=numbers.quantity(size))

    def closed_marks(own: Sequence[ShardingResult]) -> Iterator[Mark]:
        yield closed_form_mark(mib(r.closed_form_sent_bytes) for r in own)

    backends = [b for b in run.backends if any(r.backend == b for r in sent)]
    panels = bar_panels(sent, backends, words("axis.sent"), bars, closed_marks)
    used = {bar_series(r) for r in rows}
    look = [*legend.series(words, "zero_price", "wire", used), legend.closed_form(words)]
    said = ", ".join(f"{r.arm} {r.backend} {numbers.nbytes(r.sent_bytes)}" for r in rows)
    yield build_figure(words, "zero_price", panels, look, {"values": said})


def bar_series(r: ShardingResult) -> str:
    """Return the series of a result's bar, ``wire_more`` if it sends more bytes than it needs, else
    ``wire``."""
    return "wire_more" if r.is_wasteful else "wire"


# --- sentences ------------------------------------------------------------------------------------


def findings(notes: Notes, run: RunData, rows: Sequence[ShardingResult]) -> None:
    """Add the bytes and the time of sharding relative to replicas, and bytes on the wire relative
    to the closed form."""
    for backend in run.backends:
        wrong = (
            _format_wasteful(notes, r, rows) for r in rows if r.is_wasteful and r.backend == backend
        )
        notes.add_joined("wrong", wrong, backend=backend)
    for r in rows:
        base = matching_replicas(r, rows)
        times, sent = step_ratio(r, base), _ratio(r, base, "sent_bytes")
        shards_all = len(r.sharded_parts) == len(CLOSED_FORM_PARTS)
        if base and times and sent and shards_all and r.is_dualml and not r.is_wasteful:
            place = {"arm": r.arm, "backend": r.backend, "base": base.arm}
            notes.add("weights", **place, sent=sent, times=times.mean)
    notes.set_anchor("table-zero_price")
    for backend in run.backends:
        own = [r for r in rows if r.backend == backend and r.is_dualml]
        ratios = {r.arm: r.sent_ratio for r in own if r.sent_ratio}
        if ratios:
            ends = {"low": min(ratios.values()), "high": max(ratios.values())}
            notes.add("wire", backend=backend, n=len(ratios), **ends)


def _ratio(r: ShardingResult, other: ShardingResult | None, quantity: str) -> float | None:
    """Return a result's ``quantity`` (``sent_bytes`` or ``closed_form_sent_bytes``) relative to
    another's, None if unknown."""
    own, base = (x and getattr(x, quantity) for x in (r, other))
    return own / base if own and base else None


def _format_wasteful(notes: Notes, r: ShardingResult, rows: Sequence[ShardingResult]) -> str:
    """Return the all-reduce variant compared with the same arm by reduce-scatter, as text; empty if
    a number is unknown."""
    other = reduce_scatter_partner(r, rows)
    times = step_ratio(r, other)
    ratios = (_ratio(r, other, key) for key in ("closed_form_sent_bytes", "sent_bytes"))
    values = dict(zip(("closed", "wire"), ratios, strict=True))
    if other is None or times is None:
        return ""
    return notes.format_part("wrong_item", arm=r.arm, other=other.arm, times=times.mean, **values)


def reduce_scatter_partner(
    r: ShardingResult, rows: Sequence[ShardingResult]
) -> ShardingResult | None:
    """Return the result on the same backend of the arm that differs only in how gradients are
    reduced, None without one."""
    name = r.run.contrast.partner(r.arm, vary=("zero_reduce",))
    return next((x for x in rows if (x.arm, x.backend) == (name, r.backend)), None)


TOPIC = table_section(
    "zero_price",
    12,
    reads=multi_rank_results,
    columns=columns,
    figures=figures,
    findings=findings,
    anchor="figure-zero_price",
    priority=lambda run: 70,
    when=has_sharded_arms,
)
