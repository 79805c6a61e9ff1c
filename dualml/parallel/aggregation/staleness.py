"""The staleness of gradients in an asynchronous training: the number of updates between the
parameters a gradient was computed at and its own update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np


class StalenessContent(TypedDict):
    """Staleness of gradients in updates: of all ranks, and the mean of each rank."""

    mean: float
    max: int
    ranks: list[float]


def staleness_stats(served: Sequence[tuple[int, int, int]], size: int) -> StalenessContent:
    """Return the mean and maximum staleness of all gradients, and the mean of each of ``size``
    ranks; 0 where there is none. ``served`` has (step, rank, staleness) for each update."""
    every = [s for _, _, s in served] or [0]
    ranks = [[s for _, rank, s in served if rank == r] or [0] for r in range(size)]
    means = [float(np.mean(r)) for r in ranks]
    return {"mean": float(np.mean(every)), "max": max(every), "ranks": means}
