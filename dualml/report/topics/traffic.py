"""Traffic of collectives: counted by the ranks, by the closed form, and on the wire."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages
from dualml.common.words.numbers import nbytes
from dualml.experiment.store.run import RunData
from dualml.report.collective_timing import (
    CollectiveMeasurements,
    CollectiveTraffic,
    collective_measurements,
)
from dualml.report.columns import Columns
from dualml.report.measures import drop_missing, sort_by_value
from dualml.report.notes import Notes
from dualml.report.topics import table_section

EXTRA = 1.25  # ratio to the closed form from which on extra bytes are reported
Measured = tuple[CollectiveMeasurements, str]


def measured_strategies(run: RunData) -> list[Measured]:
    """Return (measurements, strategy) for every strategy that was measured."""
    return [(m, name) for m in collective_measurements(run) for name in m.strategies]


def columns(run: RunData, words: Messages, records: Sequence[Measured]) -> Columns[Measured]:
    """Return the columns of the traffic of the largest vector; the messages of native collectives
    cannot be counted."""
    inside = words("value.inside")

    def traffic(m: CollectiveMeasurements, name: str) -> tuple[object, ...]:
        at = (name, m.ends[1])
        counted = m.counted_traffic(*at) or CollectiveTraffic(inside, inside, inside)
        closed = m.closed_form_traffic(*at) or CollectiveTraffic(None, None, None)
        ratio, wire = m.wire_ratio(*at), m.rows.get(at, {}).get("wire_bytes")
        sent = (counted.messages, closed.messages, counted.nbytes, closed.nbytes, closed.total)
        return (*sent, round(wire) if ratio and wire else None, ratio)

    calls = ("messages_counted:per_rank", "messages_closed:per_rank")
    sizes = ("bytes_counted:bytes_per_rank", "bytes_closed:bytes_per_rank")
    return {
        ("`strategy`", "backend", "ranks:count"): lambda r: (r[1], r[0].backend, r[0].n),
        (*calls, *sizes, "bytes_total:bytes_all", "wire:bytes_all", "wire_ratio:relative"): (
            lambda r: traffic(*r)
        ),
    }


def findings(notes: Notes, run: RunData, records: Sequence[Measured]) -> None:
    """Add in how many measurements the counted bytes equal the closed form, whatever the messages,
    and how many more bytes the wire carried."""
    every = collective_measurements(run)
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


TOPIC = table_section(
    "traffic",
    205,
    reads=measured_strategies,
    columns=columns,
    findings=findings,
    values=lambda run, records: {"sizes": sorted({nbytes(m.ends[1]) for m, _ in records})},
)
