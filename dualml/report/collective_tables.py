"""Tables of the collectives alone: seconds by size, and bytes against the closed form."""

from __future__ import annotations

from dualml.report import numbers
from dualml.report.cells import Cell, Head, Table, heads, number
from dualml.report.collectives import Measured, measured, size_of
from dualml.report.model import Run
from dualml.report.words import Words


def collective_tables(run: Run, words: Words) -> list[Table]:
    found = measured(run)
    return [_times(found, words), _traffic(found, words)] if found else []


def _times(found: list[Measured], words: Words) -> Table:
    """Strategies down, sizes across: the median, beneath it the quartiles."""
    sizes = sorted({s for m in found for s in m.sizes})
    unit = words("unit.milliseconds")
    rows = []
    for m in found:
        best = {s: min((t for x in m.exact() if (t := m.seconds(x, s))), default=0) for s in sizes}
        for strategy in m.strategies:
            cells = []
            for s in sizes:
                row = m.rows.get((strategy, s))
                if row is None:
                    cells.append(number(numbers.NONE))
                    continue
                low, mid, high = (
                    numbers.quantity(1e3 * row[k]) for k in ("low", "seconds", "high")
                )
                tone = "good" if row["seconds"] == best[s] and strategy in m.exact() else ""
                cells.append(Cell(mid, "number", tone, f"{low} – {high}"))
            rows.append([Cell(strategy, "code"), Cell(m.backend), number(str(m.n)), *cells])
    head = [
        *heads(words, "strategy", "backend", "ranks:count"),
        *(Head(size_of(s), unit, True) for s in sizes),
    ]
    return Table("collectives", words("table.collectives"), head, rows)


def counted(m: Measured, strategy: str, size: int) -> tuple[int, int, int] | None:
    """Messages and bytes of the rank that sent most, and bytes of all ranks; None where a native
    collective made the messages."""
    row = m.rows.get((strategy, size))
    if row is None or not row.get("traffic"):
        return None
    traffic = row["traffic"]
    sent = [(int(t["sent"]), int(t["bytes_sent"])) for t in traffic]
    if not any(b for _, b in sent) or any(t.get("calls") for t in traffic):
        return None
    return max(n for n, _ in sent), max(b for _, b in sent), sum(b for _, b in sent)


def closed(m: Measured, strategy: str, size: int) -> tuple[float, float, float] | None:
    """The same by the closed form."""
    from dualml.cost.closed import cost
    from dualml.errors import UserError

    try:
        found = cost(strategy, m.n, size, 4)
    except UserError:
        return None
    return found.sent, found.bytes_sent, found.total_bytes


def wire_ratio(m: Measured, strategy: str, size: int) -> float | None:
    """Bytes on the wire over those of the closed form."""
    row, told = m.rows.get((strategy, size)), closed(m, strategy, size)
    wire = row.get("wire_bytes") if row else None
    if m.threads or not numbers.known(wire) or told is None or not told[2]:
        return None
    return float(wire) / told[2]


def _traffic(found: list[Measured], words: Words) -> Table:
    rows = []
    for m in found:
        size = m.sizes[-1]
        for strategy in m.strategies:
            ours, told = counted(m, strategy, size), closed(m, strategy, size)
            wire = (m.rows.get((strategy, size)) or {}).get("wire_bytes")
            ratio = wire_ratio(m, strategy, size)
            inside = words("value.inside")
            rows.append(
                [
                    Cell(strategy, "code"),
                    Cell(m.backend),
                    number(str(m.n)),
                    number(numbers.quantity(ours[0]) if ours else inside),
                    number(numbers.quantity(told[0]) if told else numbers.NONE),
                    number(numbers.quantity(ours[1]) if ours else inside),
                    number(numbers.quantity(told[1]) if told else numbers.NONE),
                    number(numbers.quantity(told[2]) if told else numbers.NONE),
                    number(numbers.quantity(wire and round(wire)) if ratio else numbers.NONE),
                    number(numbers.factor(ratio)),
                ]
            )
    head = heads(
        words,
        *("strategy", "backend", "ranks:count", "messages_counted:per_rank"),
        *("messages_closed:per_rank", "bytes_counted:bytes_per_rank"),
        *("bytes_closed:bytes_per_rank", "bytes_total:bytes_all", "wire:bytes_all"),
        "wire_ratio:relative",
    )
    sizes = words.join(sorted({size_of(m.sizes[-1]) for m in found}))
    return Table("traffic", words("table.traffic", size=sizes), head, rows)
