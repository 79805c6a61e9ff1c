"""Bandwidths of collectives as nccl-tests define them, to be held against a link's.

Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import NamedTuple

from dualml.cost.closed import exact


class Bandwidths(NamedTuple):
    """In bytes per second.

    Attributes:
        algbw: S / t, where S is the vector that each rank ends with.
        busbw: algbw · 2 (n − 1)/n: what each rank's link would carry if a ring did it.
    """

    algbw: float
    busbw: float


def bandwidths(strategy: str, n: int, nbytes: int, seconds: float) -> Bandwidths | None:
    """Of a strategy that gives every rank the whole sum, which is an all-reduce whichever
    collectives carry it out; None for others, and where nothing is sent or no time passes.

    Args:
        n: ranks.
        nbytes: S, of one rank's vector.
        seconds: t, until the last rank has the sum.
    """
    if not exact(strategy) or n < 2 or nbytes <= 0 or seconds <= 0:
        return None
    algbw = nbytes / seconds
    return Bandwidths(algbw, algbw * 2 * (n - 1) / n)
