"""Costs of sharding: bytes sent in an update, by the closed form and on the wire, and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Cell, Item
from dualml.report.closed_memory import KNOWN, MIB
from dualml.report.columns import table
from dualml.report.families import crowding
from dualml.report.figure import Axis, Bar, Figure, Key, Line, Mark, Owner, Panel
from dualml.report.notes import Notes
from dualml.report.results import Result
from dualml.report.sharing import Sharing, about, sharings
from dualml.report.shown import figure
from dualml.report.spread import Spread, ratio
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers

#: Series of bytes sent → colour.
LOOKS = {"wire": "steel", "wire_more": "brick"}


def rows_of(run: Run) -> list[Sharing]:
    """Return the multi-rank arms that ran."""
    return [r for r in sharings(run) if r.n > 1 and r.way.trials]


def replicas(r: Sharing, rows: Sequence[Sharing]) -> Sharing | None:
    """Return dualml's own arm with as many ranks that shards nothing, in the same precision; None
    without one."""
    same = r.n, r.backend, r.precision
    plain = (x for x in rows if x.own and not x.shared)
    return next((x for x in plain if (x.n, x.backend, x.precision) == same), None)


def against(r: Sharing, other: Sharing | None) -> Spread | None:
    """Return the seconds of an update relative to another arm's, None if unknown."""
    if other is None:
        return None
    return ratio(*(Result(x.way.run, x.arm, x.backend).steps for x in (r, other)))


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows = rows_of(run)
    yield from crowding(run, words, [r.arm for r in rows])
    if any(r.way.sent for r in rows):
        yield _figure(run, words, rows)
    head = ("method", "`arm`", "backend", "ranks:count", "shared_out", "sent_closed:bytes_update",
            "sent_wire:bytes_update", "sent_ratio:relative", "step:milliseconds",
            "replicas_times:relative")  # fmt: skip
    cells = [
        [r.way.title(words), r.arm, r.backend, r.n,
         Cell(r.shares(words) or numbers.NONE, note=r.reduced), r.way.closed, r.way.sent,
         r.way.sent / r.way.closed if r.way.sent and r.way.closed else None,
         Result(run, r.arm, r.backend).step, against(r, replicas(r, rows))]
        for r in rows
    ]  # fmt: skip
    yield from table(words, "zero_price", head, cells)


def _figure(run: Run, words: Words, rows: Sequence[Sharing]) -> Figure:
    """Return a bar for the bytes sent and a mark for the closed form; all-reduce variants in
    another colour."""
    backends = [b for b in run.backends if any(r.backend == b and r.way.sent for r in rows)]
    panels = []
    for backend in backends:
        own = [r for r in rows if r.backend == backend and r.way.sent]
        marks: list[Mark] = [
            Bar(y, r.way.sent / MIB, Owner(series=series(r)),
                text=numbers.quantity(r.way.sent / MIB))
            for y, r in enumerate(own) if r.way.sent
        ]  # fmt: skip
        known = [(y, r.way.closed / MIB) for y, r in enumerate(own) if r.way.closed]
        marks.append(Line([x for _, x in known], [y for y, _ in known], Owner(series="closed"),
                          joined=False))  # fmt: skip
        down = Axis(names=[r.arm for r in own], grid=False)
        panels.append(Panel(marks, Axis(words("axis.sent"), low=0), down, backend,
                            height=22.0 * len(own)))  # fmt: skip
    used = {series(r) for r in rows}
    look = [Key("series", s, words(f"zero_price.{s}"), color=c)
            for s, c in LOOKS.items() if s in used]  # fmt: skip
    mark = Key("series", "closed", words("zero.closed"), color="black", marker="diamond",
               hollow=True)  # fmt: skip
    said = ", ".join(f"{r.arm} {r.backend} {numbers.nbytes(r.way.sent)}" for r in rows)
    return figure(words, "zero_price", panels, [*look, mark], {"values": said},
                  columns=len(panels))  # fmt: skip


def series(r: Sharing) -> str:
    return "wire_more" if r.wasteful else "wire"


# --- sentences ------------------------------------------------------------------------------------


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, rows = Notes(words, "zero_price", "figure-zero_price"), rows_of(run)
    for backend in run.backends:
        wrong = (_wrong(notes, r, rows) for r in rows if r.wasteful and r.backend == backend)
        notes.say_all("wrong", wrong, backend=backend)
    for r in rows:
        base = replicas(r, rows)
        times = against(r, base)
        if base and times and len(r.shared) == len(KNOWN) and r.own and not r.wasteful:
            sent = [x.way.sent for x in (r, base)]
            if sent[0] and sent[1]:
                notes.say("weights", arm=r.arm, backend=r.backend, base=base.arm,
                          sent=sent[0] / sent[1], times=times.mean)  # fmt: skip
    notes.about("table-zero_price")
    for backend in run.backends:
        ratios = {r.arm: r.way.sent / r.way.closed for r in rows
                  if r.backend == backend and r.own and r.way.sent and r.way.closed}  # fmt: skip
        if ratios:
            notes.say("wire", backend=backend, n=len(ratios), low=min(ratios.values()),
                      high=max(ratios.values()))  # fmt: skip
    return notes


def _wrong(notes: Notes, r: Sharing, rows: Sequence[Sharing]) -> str:
    """Return the all-reduce variant compared with the same arm by reduce-scatter, as text."""
    other = by_reduce_scatter(r, rows)
    times = against(r, other)
    if not (
        other and times and r.way.closed and other.way.closed and r.way.sent and other.way.sent
    ):
        return ""
    return notes.part("wrong_item", arm=r.arm, other=other.arm, times=times.mean,
                      closed=r.way.closed / other.way.closed,
                      wire=r.way.sent / other.way.sent)  # fmt: skip


def by_reduce_scatter(r: Sharing, rows: Sequence[Sharing]) -> Sharing | None:
    """Return the arm that differs only in how gradients are reduced, None without one."""
    name = r.way.run.contrast.partner(r.arm, vary=("zero_reduce",))
    return next((x for x in rows if (x.arm, x.backend) == (name, r.backend)), None)


TOPIC = Topic("zero_price", 12, evidence, findings, leads=lambda run: 70, when=about)
