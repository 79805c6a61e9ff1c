"""The largest models that trained under a limit, as a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.cost.units import told_bytes
from dualml.report.blocks import Cells, Column, Table
from dualml.store.largest import LargestRow, Tried
from dualml.words import Words, numbers

TEXTS = ("backend", "recompute")
KEYS = (
    "backend", "ranks", "zero", "recompute", "predicted", "blocks", "parameters", "bytes", "losses",
    "seconds",
)  # fmt: skip


def line(tried: Tried, words: Words) -> str:
    """One try."""
    if tried.fits:
        return words("largest.fits", blocks=tried.blocks, loss=losses(tried))
    return words("largest.full", blocks=tried.blocks, reason=tried.reason)


def losses(tried: Tried) -> str:
    return " → ".join(numbers.loss(loss) for loss in (tried.losses[0], tried.losses[-1]))


def largest(row: LargestRow) -> Tried:
    """Of its tries the one that is the answer."""
    return next(tried for tried in row.tries if tried.blocks == row.blocks)


def table(rows: Sequence[LargestRow], words: Words, name: str = "largest") -> Table:
    """Blocks and bytes by the planner, and as they trained."""
    columns = [
        Column(key, words(f"largest.column.{key}"), show="text" if key in TEXTS else "number")
        for key in KEYS
    ]
    cells: list[Cells] = []
    for row in rows:
        best = largest(row)
        cells.append([
            row.backend, str(row.world_size), str(row.zero), row.recompute,
            str(row.predicted_blocks), str(row.blocks), f"{row.parameters:,}",
            f"{told_bytes(row.predicted_bytes)} / {told_bytes(best.held_bytes)}", losses(best),
            numbers.quantity(best.step_s),
        ])  # fmt: skip
    first = rows[0]
    caption = words(
        "largest.caption", model=first.model, width=first.width, limit=told_bytes(first.limit_bytes)
    )
    return Table(name, caption, columns, cells)


def next_one(row: LargestRow, words: Words) -> str:
    """Why one block more does not train."""
    above = next((tried for tried in row.tries if tried.blocks == row.blocks + 1), None)
    setting = f"{row.backend}, ZeRO-{row.zero}, {row.recompute}"
    if above is None:
        return words("largest.most", setting=setting, blocks=row.blocks)
    return words("largest.next", setting=setting, blocks=above.blocks, reason=above.reason)
