"""Timing ratios that are robust on a busy machine: variants alternate in one process.

The times of a round share whatever else the machine was doing, so their ratio hardly depends on it.
The median over the rounds is the result, the quartiles say how far to trust it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dualml.common.json_types import JsonObject

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of the ratios of two variants' times in the same round."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class RatioRow:
    """One line of the results.

    Attributes:
        section: the table of this row.
        what, against: what was measured, and what it is compared with.
        ours, other: the two figures in ``unit``; ``other`` is None if there is only a limit.
        ratio: ours / other; below 1, ours is faster or smaller.
        target: largest acceptable ``ratio`` (or ``ours``, without a ratio); None for no target.
        note: a note for readers; for a missed target, the reason.
    """

    section: str
    what: str
    against: str
    ours: float
    other: float | None
    unit: str
    ratio: Ratio | None
    target: float | None = None
    note: str = ""

    @property
    def meets_target(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        return (self.ratio.median if self.ratio else self.ours) <= self.target

    def with_reason(self, reason: str) -> RatioRow:
        """Return the row with the reason as its note if its target is missed; else the row
        itself."""
        return replace(self, note=reason) if self.meets_target is False else self

    def describe(self) -> JsonObject:
        """Return the row as a JSON-serializable dict, with `meets_target` as ``met``."""
        return {**asdict(self), "met": self.meets_target}


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


def fastest_variant(times: Times, names: Sequence[str]) -> str:
    """Return the one of ``names`` with the smallest median time: the strongest competitor."""
    return min(names, key=lambda name: statistics.median(times[name]))


def make_row(
    section: str,
    what: str,
    against: str,
    times: Times,
    ours: str,
    other: str,
    **more: Any,
) -> RatioRow:
    """Make a row in milliseconds from two variants' times in milliseconds."""
    return RatioRow(
        section=section,
        what=what,
        against=against,
        ours=statistics.median(times[ours]),
        other=statistics.median(times[other]),
        unit="ms",
        ratio=ratio_quartiles(times[ours], times[other]),
        **more,
    )
