"""Ring all-reduce: bandwidth-optimal, in 2 (n − 1) steps between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from dualml.parallel.aggregation.base import STRATEGIES, Strategy
from dualml.parallel.aggregation.layers import cut_layers
from dualml.parallel.aggregation.schedule import CollectiveSchedule, ReceiveOp, StepGroup, Transfer


@STRATEGIES.register("ring", 60)
@dataclass(frozen=True)
class Ring(Strategy):
    """Reduce-scatters, then all-gathers, around a ring.

    The vector is split into n chunks. For n − 1 steps every rank sends one chunk to the right,
    where it is added: afterwards rank r holds the sum of chunk r + 1. For n − 1 more steps the
    finished chunks are passed around. Each rank sends 2 (n − 1) messages of S / n bytes, 2 (n − 1)
    / n · S in all, whatever n is.

    If the vector is split only between layers (``layers``, `for_layers`), chunks differ in size: in
    every step the largest one is being sent, and the busiest rank sends everything twice except for
    the smallest pair of consecutive chunks.

    Attributes:
        layers: number of elements of each layer of the vector; empty: n nearly equal chunks.

    Source: Patarasuk & Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of
    Workstations", J. Parallel Distrib. Comput. 69(2).
    """

    formulas: ClassVar = (
        r"m = 2 (n-1)",
        r"b = 2 \frac{n-1}{n} S",
        r"T = 2 (n-1) \alpha + 2 \frac{n-1}{n} S \beta",
    )

    layers: tuple[int, ...] = ()

    def for_layers(self, sizes: Sequence[int]) -> Ring:
        """Return a ring whose chunks are whole layers with these numbers of elements."""
        return Ring(tuple(sizes))

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return n − 1 steps that add chunks around the ring, then n − 1 that replace them."""
        bounds = cut_layers(self.layers, n) if self.layers else ()
        return CollectiveSchedule(n, n, (*ring_pass(n, 0, "add"), *ring_pass(n, 1, "put")), bounds)

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return two groups of n − 1 steps, reduce-scatter and all-gather, each with the largest
        chunk."""
        # The largest chunk's way around the ring is the critical path.
        largest = max(self.chunks(n)) if self.layers else -(-length // n)
        return [
            StepGroup("shift", 1, 1, largest, added, length, n, times=n - 1)
            for added in (largest, 0)
        ]

    def chunks(self, n: int) -> list[int]:
        """Return the number of elements of each of the n chunks of whole layers; only for a ring
        with ``layers``."""
        return [b - a for a, b in pairwise(cut_layers(self.layers, n))]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return 2 (n − 1) messages, and the elements that the busiest rank sends: the vector
        twice, without the smallest pair of consecutive chunks."""
        if self.layers:
            sizes = self.chunks(n)
            spared = min(a + b for a, b in zip(sizes, [*sizes[1:], sizes[0]], strict=True))
            return 2 * (n - 1), 2 * length - spared
        # All chunks twice, but for two that follow one another: at best two of the short ones.
        longer = length % n
        return 2 * (n - 1), 2 * length - 2 * (length // n) - (1 if n - longer == 1 else 0)


def ring_pass(n: int, first: int, then: ReceiveOp) -> tuple[tuple[Transfer, ...], ...]:
    """Return the n − 1 steps of one pass around the ring: rank r sends chunk r + ``first`` to the
    right, and from then on what it has just received, to be added or put there as ``then`` says. In
    the last step it receives chunk r + ``first`` + 1. Chunks and ranks count modulo n."""

    def step(number: int) -> tuple[Transfer, ...]:
        chunks = [(r + first - number) % n for r in range(n)]
        return tuple(Transfer(r, (r + 1) % n, c, c, then) for r, c in enumerate(chunks))

    return tuple(step(number) for number in range(n - 1))
