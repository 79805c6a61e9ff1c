"""Differences of test accuracies from seed to seed, and whether they show two arms equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualml.parity.statistics import ENOUGH, equivalent
from dualml.report.results import Result
from dualml.report.spread import paired
from dualml.words import Words

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


def gap(a: Result, b: Result) -> Gap | None:
    """Test accuracy of ``a`` minus that of ``b``; None without a common seed."""
    difference = paired(a.accuracies, b.accuracies, lambda x, y: x - y)
    if difference is None:
        return None
    if difference.seeds < ENOUGH:
        return Gap("few", difference.mean, *difference.ends, difference.seeds)
    seeds = [seed for seed in a.accuracies if seed in b.accuracies]
    test = equivalent([a.accuracies[s] for s in seeds], [b.accuracies[s] for s in seeds])
    low, high = difference.ends
    kind: Kind = "equal" if test["equivalent"] else "apart" if low > 0 or high < 0 else "open"
    return Gap(kind, difference.mean, test["low"], test["high"], len(seeds))


def in_words(gap: Gap, words: Words) -> str:
    """``−3.20 points (−4.10 … −2.30)``, or that there are too few seeds for an interval."""
    if gap.kind == "few":
        return words.plural("gap.told_few", gap.seeds, gap=gap)
    return words("gap.told", gap=gap)


def in_list(gaps: dict[str, Gap], words: Words) -> list[str]:
    """Arm by arm; without intervals where there are none at all."""
    few = all(g.kind == "few" for g in gaps.values())
    return [
        f"{arm} {words('gap.points', gap=g) if few else in_words(g, words)}"
        for arm, g in gaps.items()
    ]
