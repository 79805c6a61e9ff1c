"""All-reduce by the framework's own collective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor


@STRATEGIES.register("all_reduce", 10)
@dataclass(frozen=True)
class AllReduce(Strategy):
    """Calls the framework's all-reduce once; the framework chooses the algorithm.

    The schedule shown for it is the ring's, which moves the fewest bytes per rank that any
    algorithm can: 2 (n − 1) / n · S.

    Source: Patarasuk & Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations", J. Parallel Distrib. Comput. 69(2), theorem 1.
    """

    reference_algorithm: ClassVar[str] = "ring"
    uses: ClassVar[tuple[str, ...]] = ("all_reduce",)
    is_point_to_point: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Return the sum of the 1-D ``x`` over the ranks by the framework's all-reduce, in place
        where the framework can: ``x`` may be overwritten."""
        return comm.all_reduce(x, inplace=True)
