"""Binary tree all-reduce: the fewest steps, for short vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualml.parallel.aggregation.base import STRATEGIES, Strategy
from dualml.parallel.aggregation.schedule import CollectiveSchedule, StepGroup, Transfer


def reduce_steps(n: int) -> list[tuple[Transfer, ...]]:
    """Return the ⌈log₂ n⌉ steps that sum the whole vectors of n ranks on rank 0 over a binomial
    tree."""
    steps, distance = [], 1
    while distance < n:
        senders = range(distance, n, 2 * distance)
        steps.append(tuple(Transfer(r, r - distance, 0, 0, "add") for r in senders))
        distance *= 2
    return steps


def broadcast_steps(n: int) -> list[tuple[Transfer, ...]]:
    """Return the ⌈log₂ n⌉ steps that send rank 0's whole vector to n ranks, each of which replaces
    its own: those of `reduce_steps` backwards."""
    return [
        tuple(Transfer(t.target, t.source, 0, 0, "put") for t in step)
        for step in reversed(reduce_steps(n))
    ]


@STRATEGIES.register("tree", 70)
@dataclass(frozen=True)
class Tree(Strategy):
    """Reduces to rank 0 along a binomial tree and broadcasts back along it.

    2 ⌈log₂ n⌉ steps instead of the ring's 2 (n − 1), but each moves the whole vector: rank 0 sends
    and receives ⌈log₂ n⌉ S. It is better where latency dominates, worse where bandwidth does.

    Source: Thakur, Rabenseifner & Gropp 2005, "Optimization of Collective Communication Operations
    in MPICH", Int. J. High Perform. Comput. Appl. 19(1), sections 4.2 and 4.4.
    """

    formulas: ClassVar = (
        r"m = \lceil \log_2 n \rceil",
        r"b = \lceil \log_2 n \rceil S",
        r"T = 2 \lceil \log_2 n \rceil ( \alpha + S \beta )",
    )

    def schedule(self, n: int) -> CollectiveSchedule:
        """Return ⌈log₂ n⌉ steps that reduce to rank 0, then ⌈log₂ n⌉ that broadcast from it."""
        return CollectiveSchedule(n, 1, tuple(reduce_steps(n) + broadcast_steps(n)))

    def step_groups(self, n: int, length: int) -> list[StepGroup]:
        """Return one group per tree level, upwards and then downwards; each message has ``length``
        elements."""
        ascent, descent, distance = [], [], 1
        while distance < n:
            m = len(range(distance, n, 2 * distance))
            ascent.append(StepGroup("up", distance, 1, length, length, m * length, m))
            descent.append(StepGroup("down", distance, 1, length, 0, m * length, m))
            distance *= 2
        return ascent + descent[::-1]

    def max_rank_volume(self, n: int, length: int) -> tuple[int, int]:
        """Return ⌈log₂ n⌉ messages and ⌈log₂ n⌉ · ``length`` elements, which rank 0 sends."""
        steps = (n - 1).bit_length()
        return steps, steps * length
