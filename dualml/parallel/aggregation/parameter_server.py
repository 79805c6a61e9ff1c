"""Synchronous parameter server: gather on one rank, broadcast from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, Transfer


@STRATEGIES.register("parameter_server", 40)
@dataclass(frozen=True)
class ParameterServer(Strategy):
    """Gathers every vector on rank 0, which sums them in the order of ranks and broadcasts the sum.

    The server receives (n − 1) S: its link is the bottleneck, the more so the more workers there
    are. The schedule shows n − 1 messages to the server, and n − 1 back.

    Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", OSDI,
    with one server and the consistency model "sequential".
    """

    formulas: ClassVar = (r"m = n - 1", r"b = (n-1) S", r"T = 2 (n-1) ( \alpha + S \beta )")
    uses: ClassVar[tuple[str, ...]] = ("gather", "broadcast")
    is_point_to_point: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """Gather ``x`` on rank 0, add in the order of ranks, broadcast the sum and return it. ``x``
        may be overwritten."""
        parts = comm.gather(x, root=0)
        if parts is not None:
            x = parts[0]
            for part in parts[1:]:
                x = comm.combine(x, part, "sum")
        return comm.broadcast(x, root=0, inplace=True)

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return a push step, in which all other ranks send to rank 0, and a pull step, in which
        rank 0 answers; no step for one rank."""
        push = tuple(Transfer(r, 0, 0, 0, "add") for r in range(1, n))
        pull = tuple(Transfer(0, r, 0, 0, "put") for r in range(1, n))
        return CollectiveSchedule(n, 1, (push, pull) if n > 1 else ())

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return the push and the pull, in which rank 0's port moves n − 1 vectors."""
        m = n - 1
        return [
            StepGroup("push", 0, m, m * length, m * length, m * length, m),
            StepGroup("pull", 0, m, m * length, 0, m * length, m),
        ]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return n − 1 messages and (n − 1) · ``length`` elements, which rank 0 sends."""
        return n - 1, (n - 1) * length
