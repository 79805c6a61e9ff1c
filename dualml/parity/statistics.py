"""Equivalence tests over several seeds, for trajectories that rounding alone drives apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualml.experiment.store.verdicts import EquivalenceContent

MARGIN = 0.01  # accuracies within one percentage point count as the same result
LEVEL = 0.05
MIN_SEEDS = 3  # minimum number of seeds for an interval or a test


def check_equivalence(
    a: Sequence[float], b: Sequence[float], margin: float = MARGIN
) -> EquivalenceContent:
    """Test whether the mean difference is inside ±``margin`` with two one-sided paired t-tests.

    Args:
        a, b: one value (a fraction) for each seed, paired; at least `MIN_SEEDS`, else a
            `ValueError`.

    Returns:
        ``{"equivalent", "mean", "low", "high", "margin", "seeds"}``, the interval being the
        1 − 2·LEVEL confidence interval that the tests are equivalent to.

    Source: Schuirmann 1987, "A comparison of the two one-sided tests procedure …".
    """
    from scipy import special  # `scipy.stats` takes a second to import

    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if len(gap) < MIN_SEEDS:
        raise ValueError(f"{MIN_SEEDS} seeds at least; received {len(gap)}")
    mean, error = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
    reach = float(special.stdtrit(len(gap) - 1, 1 - LEVEL)) * error
    low, high = mean - reach, mean + reach
    return {
        "equivalent": -margin < low and high < margin,
        "mean": mean,
        "low": low,
        "high": high,
        "margin": margin,
        "seeds": len(gap),
    }
