"""Function that runs a student's pipeline schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.course.returned import WrongReturn, read_items


def orders(
    module: Any,
    target: str,
    options: Mapping[str, Any],
    arrays: Mapping[str, Any],
    comm: Any = None,
) -> Mapping[str, Any]:
    """Call a student's schedule; return ``stages``, their number, and ``0``, ``1``, …, the passes
    of each stage, (passes, 2): 0 forward or 1 backward, and the micro-batch.

    Raises:
        WrongReturn: the result is not a list of lists of pairs.
    """
    asked = (options[name] for name in ("stages", "micro_batches", "kind"))
    made = read_items(getattr(module, target)(*asked), "list", target)
    out: dict[str, Any] = {"stages": np.array(len(made))}
    for stage, order in enumerate(made):
        items = read_items(order, "list", target)
        passes = [read_pass(item, target, f"(…)[{stage}][{i}]") for i, item in enumerate(items)]
        out[str(stage)] = np.array(passes, np.int64).reshape(len(passes), 2)
    return out


def read_pass(value: Any, function: str, part: str) -> tuple[int, int]:
    """Return a pass of a schedule as numbers: ``("F", 2)`` → (0, 2), ``("B", 2)`` → (1, 2); raise
    `WrongReturn` for anything else."""
    try:
        if isinstance(value, str):  # "F0" has two characters
            raise TypeError
        way, micro_batch = value
        return {"F": 0, "B": 1}[str(way)], int(micro_batch)
    except (KeyError, TypeError, ValueError):
        expected = '("F", k), ("B", k)'
        raise WrongReturn(f"{function}{part}", repr(value)[:40], expected, function) from None
