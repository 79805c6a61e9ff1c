"""Traffic of collectives: counted by the ranks, by the closed form, and on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages
from dualml.common.words.numbers import nbytes
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Item
from dualml.report.collective_timing import CollectiveTraffic, collective_measurements
from dualml.report.columns import table
from dualml.report.measures import drop_missing, sort_by_value
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection

EXTRA = 1.25  # ratio to the closed form from which on extra bytes are reported


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the traffic of the largest vector; the messages of native collectives cannot be
    counted."""
    inside = words("value.inside")
    rows = []
    for m, name in [
        (each, name) for each in collective_measurements(run) for name in each.strategies
    ]:
        at = (name, m.ends[1])
        counted = m.counted_traffic(*at) or CollectiveTraffic(inside, inside, inside)
        closed = m.closed_form_traffic(*at) or CollectiveTraffic(None, None, None)
        ratio, wire = m.wire_ratio(*at), m.rows.get(at, {}).get("wire_bytes")
        rows.append(
            [
                *(name, m.backend, m.n, counted.messages, closed.messages),
                *(counted.nbytes, closed.nbytes, closed.total),
                *(round(wire) if ratio and wire else None, ratio),
            ]
        )
    head = (
        "`strategy`",
        "backend",
        "ranks:count",
        "messages_counted:per_rank",
        "messages_closed:per_rank",
        "bytes_counted:bytes_per_rank",
        "bytes_closed:bytes_per_rank",
        "bytes_total:bytes_all",
        "wire:bytes_all",
        "wire_ratio:relative",
    )
    sizes = sorted({nbytes(m.ends[1]) for m in collective_measurements(run)})
    yield from table(words, "traffic", head, rows, sizes=sizes)


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return how many counts of messages and bytes match the closed form, and how many more bytes
    the wire carried."""
    notes, every = Notes(words, "traffic", "table-traffic"), collective_measurements(run)
    pairs = [
        (counted, closed)
        for m in every
        for at in m.rows
        if m.rows[at].get("counted")
        and (counted := m.counted_traffic(*at))
        and (closed := m.closed_form_traffic(*at))
    ]
    if pairs:
        same = sum(counted[1:] == closed[1:] for counted, closed in pairs)
        notes.add("counted", len(pairs), k=same, of=len(pairs))
    for m in every:
        ratios = drop_missing({name: m.wire_ratio(name, m.ends[1]) for name in m.strategies})
        more = {name: ratio for name, ratio in ratios.items() if ratio > EXTRA}
        if more:
            notes.add("wire_more", m=m, values=sort_by_value(more, descending=True))
        elif ratios:
            notes.add("wire_same", m=m, most=max(ratios.values()))
    return notes


TOPIC = ReportSection("traffic", 205, evidence, findings)
