"""Ring all-reduce: bandwidth-optimal, in 2 (n − 1) steps between neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.aggregation.base import STRATEGIES, Strategy
from dualml.aggregation.schedule import Schedule, Stage, Transfer


@STRATEGIES.register("ring", 60)
@dataclass(frozen=True)
class Ring(Strategy):
    """Scatter-reduce, then all-gather, around a ring.

    The vector is cut into n chunks. For n − 1 steps every rank sends one chunk to the right, where
    it is added: afterwards rank r holds the sum of chunk r + 1. For n − 1 more steps the finished
    chunks travel around. Each rank sends 2 (n − 1) messages of S / n bytes, 2 (n − 1) / n · S in
    all, whatever n is.

    Source: Patarasuk & Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations", J. Parallel Distrib. Comput. 69(2).
    """

    formulas: ClassVar = (
        r"m = 2 (n-1)",
        r"b = 2 \frac{n-1}{n} S",
        r"T = 2 (n-1) \alpha + 2 \frac{n-1}{n} S \beta",
    )

    def schedule(self, n: int) -> Schedule:
        def step(number: int, offset: int, then: str) -> tuple[Transfer, ...]:
            chunks = [(r + offset - number) % n for r in range(n)]
            return tuple(
                Transfer(r, (r + 1) % n, c, c, then)  # type: ignore[arg-type]
                for r, c in enumerate(chunks)
            )

        scatter = [step(i, 0, "add") for i in range(n - 1)]
        gather = [step(i, 1, "put") for i in range(n - 1)]
        return Schedule(n, n, tuple(scatter + gather))

    def stages(self, n: int, length: int) -> list[Stage]:
        largest = -(-length // n)  # its way around the ring is the critical path
        return [
            Stage("shift", 1, 1, largest, added, length, n, times=n - 1) for added in (largest, 0)
        ]

    def busiest(self, n: int, length: int) -> tuple[int, int]:
        # All chunks twice, but for two that follow one another: at best two of the short ones.
        longer = length % n
        return 2 * (n - 1), 2 * length - 2 * (length // n) - (1 if n - longer == 1 else 0)
