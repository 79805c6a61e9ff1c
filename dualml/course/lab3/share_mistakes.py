"""Detectors of typical mistakes in parts with skewed labels, and the search for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dualml.course.lab3 import share_sizes as z
from dualml.course.lab3 import shares as s
from dualml.course.lab3.chance import mean_bound, share_variance, square_sum_moments

#: Mistakes that can be made for one label alone.
OF_ONE_LABEL = ("skew_label_whole", "skew_even", "skew_alpha_ignored", "skew_ranks_differ")
#: Mistakes that are named only if no other explains the parts.
GENERAL = ("skew_alpha_scaled", "skew_not_dirichlet")
#: Factors of α that are far enough from 1, and how much two estimates of one may differ.
SCALED, MAX_FACTOR_RATIO = 1.4, 1.5


def find_skew_mistake(flags: Sequence[str], parts: s.LabelParts) -> tuple[str, ...]:
    """Return the first of the typical mistakes named in ``flags`` that is detected in all labels,
    or else in one place (``skew_even@label=0``), in a tuple; an empty tuple if none is."""
    found = next((f for f in flags if f not in GENERAL and DETECTORS[f](parts)), "")
    if found:
        return (found,)
    local = [f for f in flags if f in OF_ONE_LABEL]
    for place, some in parts_of_labels(parts) if local else ():
        for name in local:
            if some.label_shares.size and DETECTORS[name](some):
                return (f"{name}@{place}",)
    return tuple(f for f in flags if f in GENERAL and DETECTORS[f](parts))[:1]


def parts_of_labels(parts: s.LabelParts) -> Iterator[tuple[str, s.LabelParts]]:
    """Yield places, as ``label=0``, and the parts with the labels of the place alone: each label,
    all but the first, and all but the last."""
    labels = range(len(np.unique(parts.labels)))
    for number in labels:
        name = "-1" if number == labels[-1] else str(number)
        yield f"label={name}", parts.select_labels(number)
    for number in (0, labels[-1]):
        name = "-1" if number == labels[-1] else str(number)
        yield f"label=!{name}", parts.select_labels(*(k for k in labels if k != number))


def matches_alpha(
    parts: s.LabelParts, alpha_of: Callable[[float], float], most: float = 0.05
) -> bool:
    """Return whether for each α the mean of Σ p² is within ``most`` of the one expected with
    ``alpha_of(α)``."""
    return all(
        abs(
            float(parts.sums_of_squares(alpha).mean())
            - square_sum_moments(alpha_of(alpha), parts.ranks)[0]
        )
        < most
        for alpha in s.ALPHAS
    )


def total_counts(parts: s.LabelParts) -> list[int]:
    """Return the number of samples assigned in each call."""
    return [sum(map(len, found)) for found in parts.first]


def misses_label(parts: s.LabelParts) -> bool:
    """Return whether in some call a whole label is on no rank."""
    return bool((parts.label_counts.sum(2) == 0).any())


def has_wrong_axis(parts: s.LabelParts) -> bool:
    """Return whether the ranks' sizes are more equal than those of independent labels, as if shares
    were drawn over the labels for each rank."""
    return any(z.label_dependence(parts, alpha) < z.LEAST_DEPENDENCE for alpha in s.ALPHAS[1:])


def favours_ranks(parts: s.LabelParts) -> bool:
    """Return whether some rank's share is larger than that of others, on average, for an α of 1 or
    more."""
    for alpha in s.ALPHAS[1:]:
        shares = parts.shares_of(alpha)
        variance = max(share_variance(alpha, parts.ranks), float(shares.var()))
        most = mean_bound(variance, shares[..., 0].size) + z.ROUNDED
        if np.abs(shares.mean((0, 1)) - 1 / parts.ranks).max() > most:
            return True
    return False


def scales_alpha(parts: s.LabelParts) -> bool:
    """Return whether Σ p² is that of a fixed multiple of each α, as the smaller ones show it."""
    factors = []
    for alpha in s.ALPHAS[:-1]:
        mean = float(parts.sums_of_squares(alpha).mean())
        if not 1 / parts.ranks < mean < 1:
            return False
        factors.append((1 - mean) / (parts.ranks * mean - 1) / alpha)
    factor = float(np.sqrt(np.prod(factors)))
    return (
        max(factor, 1 / factor) > SCALED
        and max(factors) < MAX_FACTOR_RATIO * min(factors)
        and matches_alpha(parts, lambda alpha: factor * alpha)
    )


DETECTORS: dict[str, Callable[[s.LabelParts], bool]] = {
    "draw_not_repeatable": lambda parts: s.check_repeatable(parts) is not None,
    "draw_global": lambda parts: parts.touched,
    "draw_seed_ignored": s.ignores_seed,
    "skew_label_numbers": misses_label,
    "skew_twice": lambda parts: max(total_counts(parts)) > len(parts.labels),
    "skew_lost": lambda parts: min(total_counts(parts)) < len(parts.labels),
    "skew_in_order": lambda parts: s.check_shuffled(parts) is not None,
    "skew_same_shares": z.has_equal_label_shares,
    "skew_labels_changed": lambda parts: parts.changed > 0,
    "skew_samples_fixed": s.repeats_samples,
    "skew_shares_fixed": z.has_fixed_shares,
    "skew_wrong_axis": has_wrong_axis,
    "skew_ranks_differ": favours_ranks,
    "skew_alpha_scaled": scales_alpha,
    "skew_not_dirichlet": lambda parts: z.check_concentration(parts) is not None,
    "skew_label_whole": lambda parts: min(z.mean_squares(parts)) > 0.999,
    "skew_even": z.has_even_shares,
    "skew_alpha_ignored": lambda parts: np.ptp(z.mean_squares(parts)) < 0.05,
    "skew_alpha_inverted": lambda parts: matches_alpha(parts, lambda alpha: 1 / alpha),
    "skew_alpha_divided": lambda parts: matches_alpha(parts, lambda alpha: alpha / parts.ranks),
}
