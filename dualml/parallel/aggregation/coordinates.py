"""Reductions that are not sums: the elementwise maximum or median over ranks."""

from __future__ import annotations

from dualml.algorithms.communicator.base import Communicator
from dualml.common.array_types import Tensor
from dualml.parallel.aggregation.base import Strategy

#: Name of the reduction → strategies that can compute it. A median needs the values of all ranks, a
#: maximum can be taken step by step. The bytes sent are those of the strategy's sum.
COORDINATEWISE: dict[str, tuple[str, ...]] = {
    "max": ("all_reduce", "all_gather"),
    "median": ("all_gather",),
}


def reduce_coordinates(strategy: Strategy, comm: Communicator, x: Tensor, reduce: str) -> Tensor:
    """Return the ``max`` or ``median`` over the ranks of every entry of the 1-D ``x``, the same on
    every rank.

    The median of an even number of ranks is the mean of the middle two. ``x`` may be overwritten
    and returned.

    Args:
        strategy: a strategy that `COORDINATEWISE` lists for ``reduce``.

    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates", ICML, definition 1 (coordinate-wise median).
    """
    if reduce == "max" and strategy.name == "all_reduce":
        return comm.all_reduce(x, "max", inplace=True)
    parts = comm.all_gather(x)
    if reduce == "median":
        return comm.median(parts)
    largest, *others = parts
    for other in others:
        largest = comm.combine(largest, other, "max")
    return largest
