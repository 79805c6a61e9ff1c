"""The first difference between a student's numbers and those of a rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: Name → array, in the order of computation.
Arrays = Mapping[str, Array]
#: Factor by which the tolerance is larger for an answer that a mistake or a relation explains.
WIDER = 4.0


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
    """Return the earliest array that exceeds its tolerance, with its largest error, or is missing
    or of another shape; None if there is none.

    Arrays of an earlier update come first, on whichever rank; within an update those that are
    computed first (`time_order`), then those of rank 0. Further arrays of the student do not count.
    """
    wrong = [
        (rank, key)
        for rank, wanted in enumerate(expected)
        for key, right in wanted.items()
        if exceeds(arrays[rank].get(key), right, tolerance[rank][key])
    ]
    if not wrong:
        return None
    times = [time_order(wanted) for wanted in expected]
    rank, key = min(wrong, key=lambda place: times[place[0]][place[1]])
    return difference_of(arrays[rank].get(key), expected[rank][key], rank, key)


def exceeds(seen: Array | None, right: Array, tolerance: Any) -> bool:
    """Return whether an array is missing, of another shape than the ``right`` one, or farther from
    it than ``tolerance`` in an element."""
    if seen is None or seen.shape != right.shape:
        return True
    return bool(np.any(distances(seen, right) > tolerance))


def time_order(keys: Iterable[str]) -> dict[str, tuple[float, int]]:
    """Return key → (time, position) of arrays in the order of computation: those of update 3, as
    ``3/w``, at time 3; others half an update after those before them."""
    found: dict[str, tuple[float, int]] = {}
    now = 0.0
    for position, key in enumerate(keys):
        step, slash, _ = key.partition("/")
        if slash and step.isdigit():
            now = time = float(step)
        else:
            time = now + 0.5
        found[key] = time, position
    return found


def difference_of(seen: Array | None, right: Array, rank: int, key: str) -> Difference:
    """Return the difference of an array from the ``right`` one: its largest, or the shapes if they
    are not equal."""
    if seen is None:
        return Difference(rank, key, None, "nothing", f"shape {right.shape}")
    if seen.shape != right.shape:
        return Difference(rank, key, None, f"shape {seen.shape}", f"shape {right.shape}")
    off = distances(seen, right)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    return Difference(rank, key, index, float(seen[index]), float(right[index]))


def distances(a: Array, b: Array) -> Array:
    """Return |a − b| elementwise; 0 where both are not finite, infinity where only one is."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
    one, both = np.isfinite(a) != np.isfinite(b), ~np.isfinite(a) & ~np.isfinite(b)
    return np.where(both, 0.0, np.where(one, np.inf, off))
