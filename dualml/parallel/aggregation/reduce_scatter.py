"""Reduce-scatter, then all-gather: the two halves of an all-reduce, as ZeRO uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor


@STRATEGIES.register("reduce_scatter_all_gather", 50)
@dataclass(frozen=True)
class ReduceScatterAllGather(Strategy):
    """Calls the framework's reduce_scatter and its all_gather: the two halves of the ring as two
    calls.

    A remainder of fewer than n elements is summed by all_reduce. The schedule shown is the ring's.

    Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
    Models", section 7.1.
    """

    reference_algorithm: ClassVar[str] = "ring"
    uses: ClassVar[tuple[str, ...]] = ("reduce_scatter", "all_gather")
    is_point_to_point: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Return the sum of ``x`` over the ranks, by reduce-scatter and all-gather, the last
        ``len(x) mod n`` elements by all-reduce. ``x`` may be overwritten and returned."""
        even = len(x) - len(x) % comm.size
        if len(x) > even:
            rest = comm.all_reduce(comm.slice(x, even, len(x)))
            x = comm.write(x, even, rest, "put")
        if even:
            own = comm.reduce_scatter(comm.slice(x, 0, even))
            for r, part in enumerate(comm.all_gather(own)):
                x = comm.write(x, r * (even // comm.size), part, "put")
        return x
