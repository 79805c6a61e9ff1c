"""The largest models that trained within a memory limit, as a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.largest import LargestRow, SizeAttempt
from dualml.planning.cost.units import format_bytes
from dualml.report.blocks import Table
from dualml.report.columns import Columns, make_table

COLUMNS: Columns[LargestRow] = {
    "backend": lambda row: row.backend,
    "ranks:": lambda row: str(row.world_size),
    "zero:": lambda row: str(row.zero),
    "recompute": lambda row: row.recompute,
    "predicted:": lambda row: str(row.predicted_blocks),
    "blocks:": lambda row: str(row.blocks),
    "parameters:": lambda row: f"{row.parameters:,}",
    "bytes:": lambda row: " / ".join(
        map(format_bytes, (row.predicted_bytes, best_try(row).held_bytes))
    ),
    "losses:": lambda row: format_losses(best_try(row)),
    "seconds:": lambda row: best_try(row).step_s,
}


def describe_try(tried: SizeAttempt, words: Messages) -> str:
    """Return the result of one try as a sentence."""
    if tried.fits:
        return words("largest.fits", blocks=tried.blocks, loss=format_losses(tried))
    return words("largest.full", blocks=tried.blocks, reason=tried.reason)


def format_losses(tried: SizeAttempt) -> str:
    """Return the first and the last loss of a try, e.g. ``4.2 → 3.9``; it must have one."""
    return " → ".join(numbers.loss(loss) for loss in (tried.losses[0], tried.losses[-1]))


def best_try(row: LargestRow) -> SizeAttempt:
    """Return the try with the most blocks that fit, which is the row's ``blocks``."""
    return next(tried for tried in row.tries if tried.blocks == row.blocks)


def table(rows: Sequence[LargestRow], words: Messages, name: str = "largest") -> Table:
    """Return a table of blocks and bytes, predicted by the planner and measured in training. There
    must be a row; the caption takes model, width and limit from the first."""
    first = rows[0]
    caption = words(
        "largest.caption",
        model=first.model,
        width=first.width,
        limit=format_bytes(first.limit_bytes),
    )
    return make_table(words, name, rows, COLUMNS, caption, "largest.column.{}")


def explain_limit(row: LargestRow, words: Messages) -> str:
    """Return the sentence that says why one more block does not train, or, if that was not tried,
    that the row has the most blocks tried."""
    above = next((tried for tried in row.tries if tried.blocks == row.blocks + 1), None)
    setting = f"{row.backend}, ZeRO-{row.zero}, {row.recompute}"
    if above is None:
        return words("largest.most", setting=setting, blocks=row.blocks)
    return words("largest.next", setting=setting, blocks=above.blocks, reason=above.reason)
