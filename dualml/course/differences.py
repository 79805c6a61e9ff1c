"""The first difference between a student's numbers and those of a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Name → array, in the order of computation.
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Difference:
    """The first number that differs from the rule's.

    Attributes:
        rank: rank that returned the number.
        key: key of the array, as ``3/w``: parameter w after update 3.
        index: index of the number in the array; None if shapes differ or the array is missing.
        value, expected: the student's number and the rule's.
    """

    rank: int
    key: str
    index: tuple[int, ...] | None
    value: Any
    expected: Any


def first_difference(
    arrays: Sequence[Arrays], expected: Sequence[Arrays], tolerance: Sequence[Arrays]
) -> Difference | None:
    """Return the first array that exceeds its tolerance, with its largest error, or is missing or
    of another shape; rank 0's arrays come first, each rank's in the order of computation. None if
    there is none; further arrays of the student do not count."""
    for rank, wanted in enumerate(expected):
        for key, right in wanted.items():
            seen = arrays[rank].get(key)
            if seen is None:
                return Difference(rank, key, None, "nothing", f"shape {right.shape}")
            if seen.shape != right.shape:
                return Difference(rank, key, None, f"shape {seen.shape}", f"shape {right.shape}")
            off = distances(seen, right)
            if np.any(off > tolerance[rank][key]):
                index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
                value, should = float(seen[index]), float(right[index])
                return Difference(rank, key, index, value, should)
    return None


def distances(a: Array, b: Array) -> Array:
    """Return |a − b| elementwise; 0 where both are not finite, infinity where only one is."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
    one, both = np.isfinite(a) != np.isfinite(b), ~np.isfinite(a) & ~np.isfinite(b)
    return np.where(both, 0.0, np.where(one, np.inf, off))
