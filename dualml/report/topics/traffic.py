"""What a collective sends: counted here, by the closed form, and on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Item
from dualml.report.columns import Line as Row
from dualml.report.columns import table
from dualml.report.measured import Measured, measured
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers
from dualml.words.numbers import nbytes

EXTRA = 1.25  # times the closed form's bytes from which the surplus is told


def evidence(run: Run, words: Words) -> Iterator[Block]:
    every = measured(run)
    rows = [_row(m, name, words) for m in every for name in m.strategies]
    head = ("`strategy`", "backend", "ranks:count", "messages_counted:per_rank",
            "messages_closed:per_rank", "bytes_counted:bytes_per_rank",
            "bytes_closed:bytes_per_rank", "bytes_total:bytes_all", "wire:bytes_all",
            "wire_ratio:relative")  # fmt: skip
    sizes = words.join(sorted({nbytes(m.sizes[-1]) for m in every}))
    yield from table(words, "traffic", head, rows, size=sizes)


def _row(m: Measured, name: str, words: Words) -> Row:
    """Of the largest vector; a native collective makes its messages inside."""
    size, inside = m.sizes[-1], words("value.inside")
    counted, closed, ratio = m.counted(name, size), m.closed(name, size), m.wire_ratio(name, size)
    wire = m.rows.get((name, size), {}).get("wire_bytes") if ratio else None
    return [
        *(name, m.backend, str(m.n)),
        numbers.quantity(counted.messages) if counted else inside,
        numbers.quantity(closed and closed.messages),
        numbers.quantity(counted.nbytes) if counted else inside,
        numbers.quantity(closed and closed.nbytes),
        numbers.quantity(closed and closed.total),
        numbers.quantity(wire and round(wire)),
        numbers.factor(ratio),
    ]


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes, every = Notes(words, "traffic", "table-traffic"), measured(run)
    pairs = [
        (counted, closed)
        for m in every
        for at in m.rows
        if m.rows[at].get("counted") and (counted := m.counted(*at)) and (closed := m.closed(*at))
    ]
    if pairs:
        same = sum((a.nbytes, a.total) == (b.nbytes, b.total) for a, b in pairs)
        notes.say("counted", len(pairs), k=same, of=len(pairs))
    for m in every:
        _wire(notes, words, m)
    return notes


def _wire(notes: Notes, words: Words, m: Measured) -> None:
    """Strategies that move more than the textbook's algorithm needs; or how much none exceeds."""
    size = m.sizes[-1]
    ratios = {s: r for s in m.strategies if (r := m.wire_ratio(s, size)) is not None}
    more = sorted((s for s, r in ratios.items() if r > EXTRA), key=lambda s: -ratios[s])
    here = {"backend": m.backend, "n": m.n, "size": nbytes(size)}
    if more:
        values = words.join([f"{s} × {numbers.factor(ratios[s])}" for s in more])
        notes.say("wire_more", **here, values=values)
    elif ratios:
        notes.say("wire_same", **here, most=numbers.factor(max(ratios.values())))


TOPIC = Topic("traffic", 205, evidence, findings)
