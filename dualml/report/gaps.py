"""Differences of test accuracies from seed to seed, and whether they show two arms equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dualml.parity.statistics import ENOUGH, MARGIN, equivalent
from dualml.report.spread import Spread, paired
from dualml.store.run import Run
from dualml.words import Words, numbers

signed = numbers.points
Kind = Literal["equal", "apart", "open", "few"]


@dataclass(frozen=True)
class Gap:
    """A difference of two arms' test accuracies, a fraction, paired by seed.

    ``kind``: ``equal`` within a percentage point (two one-sided tests at 5 %), ``apart`` if the
    95 % interval leaves out zero, ``open`` if neither, ``few`` seeds for any interval. ``low`` and
    ``high`` bound the 90 % interval, which the tests are equivalent to; of ``few`` seeds they are
    the extremes.
    """

    kind: Kind
    mean: float
    low: float
    high: float
    seeds: int


def gap(run: Run, arm: str, other: str, backend: str) -> Gap | None:
    """Test accuracy of ``arm`` minus that of ``other``; None without a common seed."""
    a, b = (accuracies(run, name, backend) for name in (arm, other))
    seeds = [seed for seed in a if seed in b]
    difference = paired(a, b, lambda x, y: x - y)
    if difference is None:
        return None
    if len(seeds) < ENOUGH:
        ends = [a[seed] - b[seed] for seed in seeds]
        return Gap("few", difference.mean, min(ends), max(ends), len(seeds))
    test = equivalent([a[s] for s in seeds], [b[s] for s in seeds], MARGIN)
    apart = (difference.low or 0.0) > 0 or (difference.high or 0.0) < 0
    kind: Kind = "equal" if test["equivalent"] else "apart" if apart else "open"
    return Gap(kind, difference.mean, test["low"], test["high"], len(seeds))


def accuracies(run: Run, arm: str, backend: str) -> dict[int, float]:
    """Test accuracy of every seed."""
    known = {t.seed: t.test_accuracy for t in run.select(arm, backend)}
    return {seed: float(v) for seed, v in known.items() if numbers.known(v)}


def plus_minus(s: Spread | None, scale: float = 1.0, decimals: int | None = None) -> str:
    """The mean, and half its 95 % interval where there are seeds enough for one: to two digits, the
    mean to as many decimals, unless ``decimals`` are chosen."""
    if s is None:
        return numbers.NONE
    mean = scale * s.mean
    if s.seeds < ENOUGH or s.high is None:
        return numbers.loss(mean) if decimals is None else f"{mean:.{decimals}f}"
    half = scale * s.high - mean
    if decimals is None:
        decimals = min(8, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 4
    return f"{mean:.{decimals}f} ± {half:.{decimals}f}"


def in_words(gap: Gap, words: Words) -> str:
    """``−3.20 points (−4.10 … −2.30)``, or that there are too few seeds for an interval."""
    if gap.kind == "few":
        return words.plural("gap.told_few", gap.seeds, points=signed(gap.mean), n=gap.seeds)
    return words("gap.told", points=signed(gap.mean), low=signed(gap.low),
                 high=signed(gap.high))  # fmt: skip


def short(gap: Gap, words: Words) -> str:
    """Without the interval, where a sentence says that there is none."""
    return words("gap.points", points=signed(gap.mean))
