"""Differences of test accuracies from seed to seed, and whether they show two arms equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dualml.parity.statistics import ENOUGH, MARGIN, equivalent
from dualml.report import numbers
from dualml.report.cells import Cell, number
from dualml.report.model import Run
from dualml.report.spread import Spread, paired
from dualml.report.words import Words

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
    mine, theirs = (accuracies(run, name, backend) for name in (arm, other))
    seeds = [seed for seed in mine if seed in theirs]
    found = paired(mine, theirs, lambda a, b: a - b)
    if found is None:
        return None
    differences = [mine[seed] - theirs[seed] for seed in seeds]
    if len(seeds) < ENOUGH:
        return Gap("few", found.mean, min(differences), max(differences), len(seeds))
    tested = equivalent([mine[s] for s in seeds], [theirs[s] for s in seeds], MARGIN)
    kind: Kind = "apart" if (found.low or 0.0) > 0 or (found.high or 0.0) < 0 else "open"
    kind = "equal" if tested["equivalent"] else kind
    return Gap(kind, found.mean, tested["low"], tested["high"], len(seeds))


def accuracies(run: Run, arm: str, backend: str) -> dict[int, float]:
    """Test accuracy of every seed."""
    known = {t.seed: t.test_accuracy for t in run.select(arm, backend)}
    return {seed: float(v) for seed, v in known.items() if numbers.known(v)}


def signed(x: float) -> str:
    """A fraction as percentage points: ``+0.12``, ``−3.40``, ``0.00``."""
    text = f"{100 * x:+.2f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def plus_minus(s: Spread | None, scale: float = 1.0, decimals: int | None = None) -> Cell:
    """The mean, and half its 95 % interval where there are seeds enough for one: to two digits, the
    mean to as many decimals, unless ``decimals`` are chosen."""
    if s is None:
        return number(numbers.NONE)
    mean = scale * s.mean
    if s.seeds < ENOUGH or s.high is None:
        return number(numbers.loss(mean) if decimals is None else f"{mean:.{decimals}f}")
    half = scale * s.high - mean
    if decimals is None:
        decimals = min(8, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 4
    return number(f"{mean:.{decimals}f} ± {half:.{decimals}f}")


def told(found: Gap, words: Words) -> str:
    """``−3.20 points (−4.10 … −2.30)``, or that there are too few seeds for an interval."""
    if found.kind == "few":
        return words.plural("gap.told_few", found.seeds, points=signed(found.mean), n=found.seeds)
    return words("gap.told", points=signed(found.mean), low=signed(found.low),
                 high=signed(found.high))  # fmt: skip


def short(found: Gap, words: Words) -> str:
    """Without the interval, where a sentence says that there is none."""
    return words("gap.points", points=signed(found.mean))
