"""Fit of what an allocator reserves and does not use to published memories.

``python docs/fragments.py`` prints the shares of `training_engine.FIXED_SEGMENTS` and
`training_engine.EXTENDED_SEGMENTS`. Only sources of the fitted half of `benchmarks/planner` are
used; the others judge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.planner.engine import TORCH, find_engine

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from planner.price import Unpriced, make_layouts, make_shape, price_memory
from planner.rows import PublishedRow, fitted_rows

#: Shares that are tried.
SHARES = np.arange(0.0, 0.4, 0.01)


def fit_fragments(extended: bool) -> float:
    """Return the share of fragments with the least median error of memory, over the fitted rows of
    engines whose allocator extends its segments, or of the others; of rows with an unknown
    micro-batch none."""
    measured = list(_tensors_and_rest(extended))
    tensors, rest, published = np.array(measured).T
    errors = [np.median(np.abs(tensors * (1 + f) + rest - published) / published) for f in SHARES]
    return float(SHARES[int(np.argmin(errors))])


def _tensors_and_rest(extended: bool) -> Iterator[tuple[float, float, float]]:
    """Yield for each row the predicted bytes of tensors, all other bytes that its source counted,
    and the published bytes."""
    for row in fitted_rows():
        if not row.memory or not row.micro or (find_engine(row.software) is TORCH) != extended:
            continue
        try:
            shape, layouts = make_shape(row), make_layouts(row)
        except (Unpriced, UserError):
            continue
        held = price_memory(row, shape, layouts)
        outside = _counts_context(row) * held.communicators[0]
        buffers = held.buffers[0]
        yield float(held.allocated[0] - buffers), float(buffers + outside), row.memory


def _counts_context(row: PublishedRow) -> bool:
    """Return whether a published memory includes the context and the communicators."""
    return row.memory_kind == "nvidia-smi"


def main() -> None:
    """Print both shares."""
    print(f"fixed segments: {fit_fragments(False):.2f}")
    print(f"extended segments: {fit_fragments(True):.2f}")


if __name__ == "__main__":
    main()
