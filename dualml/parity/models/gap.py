"""Distances between two models' results, which may contain infinities and NaNs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.distance import blocked_distance, distance
from dualml.common.machine import default_threads
from dualml.parity.models.trace import OUTPUT
from dualml.parity.places import Distance

#: Subnormal float32 numbers lie below; moving zero weights by one unit produces such numbers.
TINY = float(np.finfo(np.float32).tiny)
#: Number of elements above which an array is compared in blocks.
LARGE = 1 << 16
#: Relative envelope above which a gradient is not judged.
WILD = 0.01
#: The same as a multiple of the unit in the last place, where that of low precision is larger.
LOW_PRECISION_WILD = 64


@dataclass(frozen=True)
class TensorDistance(Distance):
    """The measured distance of two arrays, under the name of the first side.

    Attributes:
        other: the array's name on the second side.
        kind: what the distance is of: ``value``; ``shape``, ``nan`` (one side), ``both_nan``,
            ``trained`` (one side), ``alone`` (a parameter of one side), ``outputs`` (an output of
            one side).
        read: returns the two arrays if they differ; else None.
    """

    other: str = ""
    kind: str = "value"
    read: Callable[[], tuple[NDArray[Any], NDArray[Any]]] | None = field(
        default=None, compare=False
    )

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The two arrays if they differ, read anew at each access; else None."""
        return None if self.read is None else self.read()

    @property
    def is_hard(self) -> bool:
        """Whether a large distance is a difference by itself: for any kind but ``shape``, which may
        be a mere layout unless the model's own output has it."""
        return self.kind != "shape" or self.tensor.startswith(OUTPUT)

    @property
    def is_unstable(self) -> bool:
        """Whether rounding alone can turn the value over.

        A channel near the non-differentiable point of its ReLU has all of its gradient or none, and
        three draws do not tell how often.
        """
        known = self.kind == "value" and self.phase in ("gradient", "update", "state")
        return known and self.envelope > max(WILD, LOW_PRECISION_WILD * self.floor)


def gap(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return the relative distance of two arrays, see `dualml.common.distance`, treating equal
    infinities on both sides (masks) as no difference.

    Infinite for different shapes; 0 if all numbers on both sides are subnormal.
    """
    if a.shape != b.shape:
        return float("inf")
    if a.size > LARGE and a.dtype.kind == b.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):
            far = blocked_distance(a, b, default_threads())
        # Infinities and subnormal numbers take the way of small arrays.
        if math.isfinite(far) and max(np.abs(one.flat[0]) for one in (a, b)) >= TINY:
            return far
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


def is_bit_identical(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Return whether two arrays have the same shape, dtype and bits, NaNs included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = (np.ascontiguousarray(one).reshape(-1) for one in (a, b))
    if a.itemsize in (1, 2, 4, 8):
        a, b = (one.view(f"u{one.itemsize}") for one in (a, b))
    else:
        a, b = (one.view(np.uint8) for one in (a, b))
    # In blocks: what `array_equal` makes of a large array would be new memory.
    return all(
        np.array_equal(a[at : at + LARGE], b[at : at + LARGE]) for at in range(0, a.size, LARGE)
    )


def has_nan(array: NDArray[Any]) -> bool:
    """Return whether an array of floating-point numbers contains a NaN; False for other types."""
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def largest_differences(
    a: NDArray[Any], b: NDArray[Any], sides: tuple[str, str] = ("a", "b"), count: int = 4
) -> list[dict[str, Any]]:
    """Return the elements that differ most, largest difference first, as dicts with ``index`` and
    both values; empty for different shapes. Equal elements are left out.

    Args:
        sides: keys of the dicts for the two values.
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
