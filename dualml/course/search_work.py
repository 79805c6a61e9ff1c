"""Limit of the search for combined mistakes, counted in its own work, so that a busy machine finds
what an idle one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualml.course.differences import Arrays, distances

#: Largest number of combinations that are tried for one class or function: about three seconds.
MAX_COMBINATIONS = 3000
#: Share of the largest number beyond which a prediction is wrong and not rounded; and the factor by
#: which a right answer's tolerance may be exceeded at the same time.
COARSE_SHARE, COARSE_FACTOR = 1e-2, 400.0


@dataclass
class SearchWork:
    """Work of the search for mistakes in one class or function.

    Attributes:
        combinations: number of combined mistakes that have been tried.
        is_bounded: whether others were left out.
    """

    combinations: int = 0
    is_bounded: bool = False

    def admit(self, count: int) -> bool:
        """Return whether a set of ``count`` mistakes is tried, which is counted if there are
        several; single ones always are."""
        if count < 2:
            return True
        if self.combinations >= MAX_COMBINATIONS:
            self.is_bounded = True
            return False
        self.combinations += 1
        return True


def find_coarse_limit(tolerance: Sequence[Arrays]) -> float:
    """Return the distance that no rounding explains: `COARSE_FACTOR` times the largest number in
    the tolerance of a right answer."""
    largest = (float(np.max(most, initial=0.0)) for own in tolerance for most in own.values())
    return COARSE_FACTOR * max(largest, default=0.0)


def is_far_off(arrays: Sequence[Arrays], predicted: Sequence[Arrays], limit: float) -> bool:
    """Return whether no tolerance has to be computed: an array is missing, of another shape, or
    farther from the predicted one than ``limit`` plus `COARSE_SHARE` of its largest number."""
    for own, wanted in zip(arrays, predicted, strict=True):
        for key, right in wanted.items():
            seen = own.get(key)
            if seen is None or seen.shape != right.shape:
                return True
            with np.errstate(all="ignore"):
                size = float(np.max(np.abs(right), initial=0.0, where=np.isfinite(right)))
            if np.any(distances(seen, right) > limit + COARSE_SHARE * size):
                return True
    return False
