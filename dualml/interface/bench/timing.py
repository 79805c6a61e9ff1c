"""Timing ratios that are robust on a busy machine: variants alternate in one process.

The times of a round share whatever else the machine was doing, so their ratio hardly depends on it.
The median over the rounds is the result, the quartiles say how far to trust it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of two variants' times in the same round."""

    median: float
    low: float
    high: float


def time_interleaved(
    variants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 2
) -> Times:
    """Run the variants alternately; return name → time in each round.

    Args:
        variants: name → function that runs one round and returns its time, in any unit.
        rounds: number of rounds. Each has a random order of variants: what a variant leaves
            behind, in caches or in other threads, then affects all others alike.
        warm_up: number of rounds before, which are not counted.
    """
    draw = random.Random(0)
    times: Times = {name: [] for name in variants}
    for number in range(-warm_up, rounds):
        for name in draw.sample(list(variants), len(variants)):
            spent = variants[name]()
            if number >= 0:
                times[name].append(spent)
    return times


def ratio_quartiles(ours: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the quartiles of ``ours`` / ``other``, two variants' times, round by round.

    Raises:
        ValueError: the numbers of rounds differ, or are less than two.
    """
    if len(ours) != len(other) or len(ours) < 2:
        raise ValueError(f"two or more common rounds needed; received {len(ours)} and {len(other)}")
    shares = [a / b for a, b in zip(ours, other, strict=True)]
    low, middle, high = statistics.quantiles(shares, n=4, method="inclusive")
    return Ratio(middle, low, high)
