"""Distances between two models' results, which may contain infinities and NaNs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.distance import distance

#: Subnormal float32 numbers lie below; moving zero weights by one unit produces such numbers.
TINY = float(np.finfo(np.float32).tiny)


def gap(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the relative `distance`, treating equal infinities on both sides (masks) as no
    difference.

    Infinite for different shapes; 0 if all numbers on both sides are subnormal.
    """
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind == "b" or b.dtype.kind == "b":
        with np.errstate(invalid="ignore"):  # NaN beside a mask
            a, b = a.astype(np.int8), b.astype(np.int8)
    same = np.isinf(a) & (a == b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    if same.any():
        a, b = np.where(same, 0, a), np.where(same, 0, b)
    if a.dtype.kind == "f" and a.size and max(np.abs(a).max(), np.abs(b).max()) < TINY:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        return distance(a, b)


def has_nan(array: NDArray[Any]) -> bool:
    """Return whether an array contains a NaN."""
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def largest_differences(
    a: NDArray[Any], b: NDArray[Any], sides: tuple[str, str] = ("a", "b"), count: int = 4
) -> list[dict[str, Any]]:
    """Return the elements that differ most, with index and both values; empty for different shapes.
    Equal elements are left out.

    Args:
        sides: keys for the two values.
        count: the largest number of elements.
    """
    if a.shape != b.shape:
        return []
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(a.astype(np.float64) - b.astype(np.float64)).ravel()
    off[np.isnan(off)] = np.inf
    off[(a == b).ravel()] = 0
    order = np.argsort(-off, kind="stable")[:count]
    return [
        {
            "index": [int(i) for i in np.unravel_index(at, a.shape)],
            sides[0]: float(a.ravel()[at]),
            sides[1]: float(b.ravel()[at]),
        }
        for at in order
        if off[at] > 0
    ]
