"""Ratios that survive a busy machine: variants take turns in one process, round after round.

A round's times share whatever else the machine was doing, so their ratio hardly depends on it. The
median over the rounds is the result, the quartiles say how far to trust it.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Ratio:
    """Median and quartiles of ratios of two variants' times in the same round."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the result.

    Attributes:
        section: the table it belongs to.
        what, against: what of ours was measured, and what it is held against.
        ours, other: the two figures in ``unit``; ``other`` is None where only a limit counts.
        ratio: ours / other: below 1, ours is the faster or the smaller one.
        target: largest ``ratio`` (or ``ours``, without a ratio) that is good; None: just reported.
        note: what a reader has to know; for a missed target, why.
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
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return (self.ratio.median if self.ratio else self.ours) <= self.target

    def describe(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def take_turns(variants: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 2) -> Times:
    """Name → its time in each round.

    Args:
        variants: name → one round of it; returns the time it took, in any unit.
        rounds: how many count. Their order is drawn anew in each round: what a variant leaves
            behind, in caches or at work in other threads, then burdens all others alike.
        warm_up: rounds before them that do not count.
    """
    draw = random.Random(0)
    times: Times = {name: [] for name in variants}
    for number in range(-warm_up, rounds):
        for name in draw.sample(list(variants), len(variants)):
            spent = variants[name]()
            if number >= 0:
                times[name].append(spent)
    return times


def ratio(ours: Sequence[float], other: Sequence[float]) -> Ratio:
    """Of the times of two variants, round by round.

    Raises:
        ValueError: not the same rounds, or fewer than two.
    """
    if len(ours) != len(other) or len(ours) < 2:
        raise ValueError(f"two or more common rounds needed; received {len(ours)} and {len(other)}")
    shares = [a / b for a, b in zip(ours, other, strict=True)]
    low, middle, high = statistics.quantiles(shares, n=4, method="inclusive")
    return Ratio(middle, low, high)


def fastest(times: Times, names: Sequence[str]) -> str:
    """The one with the smallest median: the best competitor, chosen after the race."""
    return min(names, key=lambda name: statistics.median(times[name]))


def row(
    section: str,
    what: str,
    against: str,
    times: Times,
    ours: str,
    other: str,
    why_missed: str = "",
    **more: Any,
) -> Row:
    """A row in milliseconds from two variants' times in milliseconds.

    Args:
        why_missed: the note of a missed target.
    """
    made = Row(
        section=section,
        what=what,
        against=against,
        ours=statistics.median(times[ours]),
        other=statistics.median(times[other]),
        unit="ms",
        ratio=ratio(times[ours], times[other]),
        **more,
    )
    return replace(made, note=why_missed) if made.met is False else made
