"""Means over several seeds with their 95 % confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.parity.statistics import MIN_SEEDS
from dualml.report.blocks import Cell


@dataclass(frozen=True)
class MeanInterval:
    """A mean over seeds with its confidence interval.

    ``low`` and ``high`` bound the 95 % interval (Student's t); with too few seeds for one they are
    the range, with one seed None.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the interval: the smallest and the largest value with too few seeds for
        one; with one seed both bounds are the mean."""
        low, high = (self.mean if end is None else end for end in (self.low, self.high))
        return low, high

    def scaled(self, factor: float) -> MeanInterval:
        """Return the mean and its interval multiplied by a factor."""
        low, high = (None if v is None else v * factor for v in (self.low, self.high))
        return MeanInterval(self.mean * factor, low, high, self.seeds)

    def contains(self, value: float) -> bool:
        """Return whether a value lies inside the interval (not at a bound), so that the mean does
        not differ from it significantly; False with too few seeds."""
        return self.seeds >= MIN_SEEDS and self.bounds[0] < value < self.bounds[1]

    def format_interval(self, text: Callable[[float], str]) -> str:
        """Return the 95 % interval as text, e.g. ``1.2 – 1.4``; with too few seeds for one the
        smallest and the largest value, with one seed an empty text."""
        return "" if self.low is None else " – ".join(map(text, self.bounds))

    def format_labelled_interval(self, words: Messages, text: Callable[[float], str]) -> str:
        """Return the labelled interval, e.g. ``(95 % interval 1.2 – 1.4)``; with too few seeds for
        one the smallest and the largest value, labelled as a range; empty with one seed."""
        values = self.format_interval(text)
        key = "interval" if self.seeds >= MIN_SEEDS else "range"
        return values and words(f"spread.{key}", values=values)

    def plus_minus(self, scale: float = 1.0, decimals: int | None = None) -> str:
        """Return the mean times ``scale`` and half its 95 % interval, e.g. ``1.30 ± 0.12``: the
        half to two digits and the mean with as many decimals, unless ``decimals`` are given. With
        too few seeds for an interval the mean alone, to four digits or with these decimals."""
        mean = scale * self.mean
        if self.seeds < MIN_SEEDS or self.high is None:
            return numbers.loss(mean) if decimals is None else f"{mean:.{decimals}f}"
        half = scale * self.high - mean
        if decimals is None:
            decimals = min(8, max(0, 1 - math.floor(math.log10(half)))) if half > 0 else 4
        return f"{mean:.{decimals}f} ± {half:.{decimals}f}"

    def cell(self, text: Callable[[float], str] = numbers.quantity) -> Cell:
        """Return a cell with the mean, and below it the interval, with too few seeds for one the
        smallest and the largest value, with one seed nothing."""
        return Cell(text(self.mean), note=self.format_interval(text))


def mean_interval(values: Iterable[float | None]) -> MeanInterval | None:
    """Return the mean of the finite numbers among the values with its 95 % confidence interval,
    with too few for one (`MIN_SEEDS`) their range; None without any."""
    known = [float(v) for v in values if numbers.is_finite_number(v)]
    if not known:
        return None
    mean, n = sum(known) / len(known), len(known)
    if n == 1:
        return MeanInterval(mean, None, None, n)
    if n < MIN_SEEDS:
        return MeanInterval(mean, min(known), max(known), n)
    from scipy import special  # `scipy.stats` takes a second to import

    half = float(special.stdtrit(n - 1, 0.975)) * float(np.std(known, ddof=1)) / n**0.5
    return MeanInterval(mean, mean - half, mean + half, n)


def paired_interval(
    a: Mapping[int, float], b: Mapping[int, float], combine: Callable[[float, float], float]
) -> MeanInterval | None:
    """Return the mean of ``combine(a, b)`` over the seeds that both have, with its interval
    (`mean_interval`); None without a common seed."""
    return mean_interval(combine(a[seed], b[seed]) for seed in a if seed in b)


def paired_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> MeanInterval | None:
    """Return the mean of the ratios a / b over the seeds that both have, with its interval
    (`mean_interval`); seeds at which b is 0 are left out, None if none remains."""
    return paired_interval(a, {seed: v for seed, v in b.items() if v}, lambda x, y: x / y)
