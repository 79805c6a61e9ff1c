"""Bandwidths of collectives as defined by nccl-tests, to be compared with a link's bandwidth.

Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from typing import NamedTuple

from dualml.planning.cost.closed_form import gives_exact_sum


class Bandwidths(NamedTuple):
    """Algorithm and bus bandwidth of a collective, in bytes per second.

    Attributes:
        algbw: S / t, where S is the size of the vector that each rank ends with.
        busbw: algbw · 2 (n − 1)/n: what each rank's link would carry under a ring algorithm.
    """

    algbw: float
    busbw: float


def bandwidths(strategy: str, n: int, nbytes: int, seconds: float) -> Bandwidths | None:
    """Return the bandwidths of a strategy that gives every rank the whole sum, i.e. of an
    all-reduce, whichever collectives implement it. None for other strategies, and if nothing is
    sent or no time passes.

    Args:
        strategy: name of the strategy.
        n: number of ranks.
        nbytes: S, bytes of one rank's vector.
        seconds: t, until the last rank has the sum.
    """
    if not gives_exact_sum(strategy) or n < 2 or nbytes <= 0 or seconds <= 0:
        return None
    algbw = nbytes / seconds
    return Bandwidths(algbw, algbw * 2 * (n - 1) / n)
