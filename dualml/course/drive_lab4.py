"""Function that runs a student's pipeline schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def orders(
    module: Any,
    target: str,
    options: Mapping[str, Any],
    arrays: Mapping[str, Any],
    comm: Any = None,
) -> Mapping[str, Any]:
    """Call a student's schedule; return ``stages``, their number, and ``0``, ``1``, …, the passes
    of each stage, (passes, 2): 0 forward or 1 backward, and the micro-batch."""
    asked = (options[name] for name in ("stages", "micro_batches", "kind"))
    made = list(getattr(module, target)(*asked))
    out: dict[str, Any] = {"stages": np.array(len(made))}
    for stage, order in enumerate(made):
        passes = [({"F": 0, "B": 1}[str(way)], int(m)) for way, m in order]
        out[str(stage)] = np.array(passes, np.int64).reshape(len(passes), 2)
    return out
