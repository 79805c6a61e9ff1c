"""Recursive halving and doubling: as few bytes as the ring, as few steps as the tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.algorithms.communicator.parts import part_start
from dualml.parallel.aggregation.base import STRATEGIES, Strategy
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, Transfer


@STRATEGIES.register("halving_doubling", 80)
@dataclass(frozen=True)
class HalvingDoubling(Strategy):
    """Reduce-scatters by recursive halving, all-gathers by recursive doubling (Rabenseifner).

    Among p = 2^k ranks, partners at distance p / 2, p / 4, …, 1 exchange halves of their current
    chunks and add; then they exchange back in the opposite order. 2 log₂ p messages and 2 (p − 1) /
    p · S bytes per rank. If n is no power of two, each of the n − p ranks from p on first sends its
    vector to a rank below p, and receives the sum at the end.

    Source: Thakur, Rabenseifner & Gropp 2005, section 4.5.
    """

    formulas: ClassVar = (
        r"m = 2 \log_2 n",
        r"b = 2 \frac{n-1}{n} S",
        r"T = 2 \log_2 n \, \alpha + 2 \frac{n-1}{n} S \beta",
    )

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return the exchanges at distances p/2 … 1 that add, then those at 1 … p/2 that replace,
        where p is the largest power of two up to n; one step before and one after if n is not p."""
        p = 1 << (n.bit_length() - 1)
        extra = range(p, n)
        halving: list[tuple[Transfer, ...]] = []
        held = dict.fromkeys(range(p), (0, p))  # rank → chunks that it still reduces
        distance = p // 2
        while distance:
            step = []
            for r in range(p):
                first, last = held[r]
                middle = (first + last) // 2
                low, high = (first, middle), (middle, last)
                keep, give = (high, low) if r & distance else (low, high)
                step.append(Transfer(r, r ^ distance, give[0], give[1] - 1, "add"))
                held[r] = keep
            halving.append(tuple(step))
            distance //= 2
        # Doubling sends back what halving received: the same chunks the other way, put not added.
        doubling = [
            tuple(Transfer(t.target, t.source, t.first, t.last, "put") for t in step)
            for step in reversed(halving)
        ]
        begin = [tuple(Transfer(r, r - p, 0, p - 1, "add") for r in extra)] if extra else []
        end = [tuple(Transfer(r - p, r, 0, p - 1, "put") for r in extra)] if extra else []
        return CollectiveSchedule(n, p, tuple(begin + halving + doubling + end))

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return one group per step, with the largest chunk that is sent in it."""
        p = 1 << (n.bit_length() - 1)
        m = n - p
        halving, doubling, distance = [], [], p // 2
        while distance:
            block = part_start(length, p, distance)
            halving.append(StepGroup("swap", distance, 1, block, block, distance * length, p))
            doubling.append(StepGroup("swap", distance, 1, block, 0, distance * length, p))
            distance //= 2
        begin = [StepGroup("in", p, 1, length, length, m * length, m)] if m else []
        end = [StepGroup("out", p, 1, length, 0, m * length, m)] if m else []
        return begin + halving + doubling[::-1] + end

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return the messages and elements that the busiest rank sends: 2 log₂ p messages, where p
        is the largest power of two up to n, and one more, of the whole vector, if n is not p."""
        p = 1 << (n.bit_length() - 1)
        k, extra = p.bit_length() - 1, 1 if n > p else 0
        blocks = sum(part_start(length, p, 1 << i) for i in range(1, k))
        return 2 * k + extra, length * (1 + extra) + blocks
