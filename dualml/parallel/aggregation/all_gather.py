"""All-gather of the whole vectors, then a local sum on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.base import Communicator
from dualml.parallel.aggregation.base import STRATEGIES, Strategy, Tensor
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, Transfer


@STRATEGIES.register("all_gather", 20)
@dataclass(frozen=True)
class AllGather(Strategy):
    """All-gathers the whole vectors and sums them locally in the order of ranks.

    Every rank sends and receives (n − 1) S: the simplest algorithm, and the one whose cost grows
    with n. All ranks add in the same order, so they agree bit for bit. The schedule shows every
    rank's vector as one message to every other rank.

    Source: Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations
    in MPICH", Int. J. High Perform. Comput. Appl. 19(1), section 4.1 (all-gather).
    """

    formulas: ClassVar = (r"m = n - 1", r"b = (n-1) S", r"T = (n-1) ( \alpha + S \beta )")
    uses: ClassVar[tuple[str, ...]] = ("all_gather",)
    is_point_to_point: ClassVar[bool] = False

    def sum(self, comm: Communicator, x: Tensor) -> Tensor:
        """All-gather ``x`` and return the sum of all ranks' vectors, added in the order of
        ranks."""
        total, *others = comm.all_gather(x)
        for other in others:
            total = comm.combine(total, other, "sum")
        return total

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return n − 1 steps; in step s rank r sends its whole vector to rank r + s, which adds
        it."""
        steps = tuple(
            tuple(Transfer(r, (r + shift) % n, 0, 0, "add") for r in range(n))
            for shift in range(1, n)
        )
        return CollectiveSchedule(n, 1, steps)

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return one group of n − 1 steps in which every rank sends ``length`` elements."""
        return [StepGroup("shift", 0, 1, length, length, n * length, n, times=n - 1)]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return n − 1 messages and (n − 1) · ``length`` elements, which every rank sends."""
        return n - 1, (n - 1) * length
