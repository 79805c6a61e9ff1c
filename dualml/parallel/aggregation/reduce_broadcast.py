"""Reduce to one rank, then broadcast from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor


@STRATEGIES.register("reduce_broadcast", 30)
@dataclass(frozen=True)
class ReduceBroadcast(Strategy):
    """Calls the framework's reduce to rank 0 and its broadcast: an all-reduce as two calls.

    The schedule shown is that of two binomial trees.

    Source: Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations
    in MPICH", Int. J. High Perform. Comput. Appl. 19(1), sections 4.2 and 4.4.
    """

    reference_algorithm: ClassVar[str] = "tree"
    uses: ClassVar[tuple[str, ...]] = ("reduce", "broadcast")
    is_point_to_point: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Reduce ``x`` to rank 0, broadcast the sum from there and return it. ``x`` may be
        overwritten."""
        total = comm.reduce(x, root=0)
        return comm.broadcast(x if total is None else total, root=0, inplace=True)
