"""Sizes of the shares of skewed labels: properties of Dir(α, …, α), drawn for each label by itself.

A right solution violates each of them with a probability below 10⁻⁷: the means by
`dualml.course.lab3.chance`; `label_dependence` has the standard deviation 0.067 over 120 seeds,
five labels and four ranks, so that its bounds are six and more of it away.
"""

from __future__ import annotations

import numpy as np

from dualml.course.lab3.chance import mean_bound, share_variance, square_sum_moments
from dualml.course.lab3.lists import Violation
from dualml.course.lab3.shares import ALPHAS, LabelParts

#: Error of Σ p² that may come from rounding shares to integers.
ROUNDED = 0.01
#: Distance below which two tables of shares count as equal, apart from rounding to integers.
CLOSE = 0.06
#: Sum of variances below which shares count as equal.
EQUAL = 1e-3
#: Bounds of `label_dependence`.
LEAST_DEPENDENCE, MOST_DEPENDENCE = 0.6, 1.7


def check_label_shares(parts: LabelParts) -> Violation | None:
    """Check that not all labels have the same shares; equal shares on all ranks pass here. Return
    the first violation, or None."""
    if has_equal_label_shares(parts):
        return Violation(f"{parts.title(0)}: p_0 == p_1", True, False)
    return None


def check_concentration(parts: LabelParts) -> Violation | None:
    """Check that the means of Σ p² and of p over seeds are those of Dir(α, …, α), over all labels
    and for each label by itself. Return the first violation, or None."""
    if not parts.label_shares.size:
        return Violation(f"sum(map(len, {parts.title(0)}))", 0, len(parts.labels))
    found = check_means(parts, "")
    numbers = range(parts.label_shares.shape[1])
    names = np.unique(parts.labels)
    return found or next(
        filter(None, (check_means(parts.select_labels(k), f", y = {names[k]}") for k in numbers)),
        None,
    )


def check_means(parts: LabelParts, labels: str) -> Violation | None:
    """Check the means of Σ p² and of p over the chosen labels and all seeds; ``labels`` names these
    labels in a violation. Return the first violation, or None."""
    for alpha in ALPHAS:
        squares = parts.sums_of_squares(alpha)
        mean, variance = square_sum_moments(alpha, parts.ranks)
        most = mean_bound(variance, squares.size) + ROUNDED
        if abs(squares.mean() - mean) > most:
            return Violation(
                f"mean(Σ_r p_r²), α = {alpha:g}{labels}",
                round(float(squares.mean()), 3),
                f"{mean:.3f} ± {most:.3f}",
            )
        most = mean_bound(share_variance(alpha, parts.ranks), squares.size) + ROUNDED
        for rank, share in enumerate(parts.shares_of(alpha).mean((0, 1))):
            if abs(share - 1 / parts.ranks) > most:
                return Violation(
                    f"mean(p_{rank}), α = {alpha:g}{labels}",
                    round(float(share), 3),
                    f"{1 / parts.ranks:.3f} ± {most:.3f}",
                )
    return None


def label_dependence(parts: LabelParts, alpha: float) -> float:
    """Return the variance of a rank's sum of shares over the labels, divided by the sum of the
    variances: 1 if the labels' shares are independent, 0 if the ranks' sizes are equal, more than 1
    if labels have the same shares. 1 if all shares are equal."""
    shares = parts.shares_of(alpha)
    off = shares - shares.mean(0)  # what rounding always leaves to one rank is no dependence
    apart = (off**2).mean((0, 2)).sum()
    return float((off.sum(1) ** 2).mean() / apart) if apart > EQUAL else 1.0


def check_labels_independent(parts: LabelParts) -> Violation | None:
    """Check that the shares of different labels are independent (`label_dependence`). Return the
    first violation, or None."""
    for alpha in ALPHAS:
        found = label_dependence(parts, alpha)
        if not LEAST_DEPENDENCE < found < MOST_DEPENDENCE:
            return Violation(
                f"Var(Σ_y p_y[r]) / Σ_y Var(p_y[r]), α = {alpha:g}",
                round(found, 3),
                f"1, from {LEAST_DEPENDENCE} to {MOST_DEPENDENCE}",
            )
    return None


def has_fixed_shares(parts: LabelParts) -> bool:
    """Return whether for α = 1 every label has the same shares with all seeds, and ranks' shares
    differ."""
    shares = parts.shares_of(ALPHAS[1])
    return bool(shares.size and (np.ptp(shares, axis=0) < CLOSE).all()) and not has_even_shares(
        parts
    )


def check_shares_vary(parts: LabelParts) -> Violation | None:
    """Check that for α = 1 the shares are not the same with all seeds. Return the first violation,
    or None."""
    if has_fixed_shares(parts):
        return Violation(f"{parts.title(0)}: p_y == p_y, other seed", True, False)
    return None


def has_equal_label_shares(parts: LabelParts) -> bool:
    """Return whether all labels have the same shares, apart from rounding to integers, while the
    ranks' shares differ."""
    several = parts.label_shares.shape[1] > 1
    return (
        several
        and bool((np.ptp(parts.label_shares, axis=1) < CLOSE).all())
        and not has_even_shares(parts)
    )


def has_even_shares(parts: LabelParts) -> bool:
    """Return whether all ranks have about equal shares of every label, whatever α."""
    return max(mean_squares(parts)) < 1 / parts.ranks + 0.02


def mean_squares(parts: LabelParts) -> list[float]:
    """Return for each α of `ALPHAS` the mean of Σ p² over seeds and labels."""
    return [float(parts.sums_of_squares(alpha).mean()) for alpha in ALPHAS]
