"""Statistical bounds: a right answer exceeds one about once in `TESTS_PER_FALSE_ALARM` times.

A judgement makes fewer than fifty of these tests, so that the probability of refusing a right
solution by chance is below 50 / TESTS_PER_FALSE_ALARM = 5e-8.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

#: Number of tests of right answers per false alarm.
TESTS_PER_FALSE_ALARM = 1e9
LOG = math.log(2 * TESTS_PER_FALSE_ALARM)


def chi_square_bound(freedom: int) -> float:
    """Return a bound that a χ² variable with this many degrees of freedom exceeds with probability
    1 / TESTS_PER_FALSE_ALARM at most (Laurent & Massart 2000, "Adaptive estimation of a quadratic
    functional", lemma 1)."""
    return freedom + 2 * math.sqrt(freedom * LOG) + 2 * LOG


def chi_square(counts: NDArray[np.int64], share: float | None = None, draws: int = 0) -> float:
    """Return χ² of counts that should all be equal; infinity if all are 0.

    Args:
        share, draws: for ``draws`` draws of this fraction of all items without replacement; without
            ``share`` every draw takes one item, with replacement.
    """
    n = len(counts)
    if not counts.any():
        return math.inf
    if share is None:
        mean = counts.sum() / n
        return float(((counts - mean) ** 2).sum() / mean)
    variance = max(draws * share * (1 - share), 1e-9)
    return float(((counts - draws * share) ** 2).sum() / variance * (n - 1) / n)


def mean_bound(variance: float, draws: int) -> float:
    """Return the largest plausible deviation of a mean from its expectation (Bernstein's
    inequality): ``draws`` independent numbers from [0, 1] with this ``variance`` exceed it with
    probability 1 / TESTS_PER_FALSE_ALARM at most."""
    third = LOG / (3 * draws)
    return third + math.sqrt(third**2 + 2 * variance * LOG / draws)


def square_sum_moments(alpha: float, ranks: int) -> tuple[float, float]:
    """Return mean and variance of Σᵢ pᵢ² for shares p ~ Dir(α, …, α) of n = ``ranks`` ranks: the
    mean is (α + 1)/(nα + 1), and the variance follows from the fourth moments of p."""
    a, n = alpha, ranks
    mean = (a + 1) / (n * a + 1)
    whole = math.prod(n * a + k for k in range(4))
    fourth = n * math.prod(a + k for k in range(4))
    pairs = n * (n - 1) * (a * (a + 1)) ** 2
    return mean, max((fourth + pairs) / whole - mean**2, 0.0)


def share_variance(alpha: float, ranks: int) -> float:
    """Return the variance of one share p_r for p ~ Dir(α, …, α) over ``ranks`` ranks."""
    mean = 1 / ranks
    return mean * (1 - mean) / (ranks * alpha + 1)
