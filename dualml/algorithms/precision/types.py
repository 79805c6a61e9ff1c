"""Low-precision types in NumPy: rounding, and units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Largest relative error of one rounding to nearest: 2⁻ᵖ with p bits of the significand.
ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
#: Exponent of the smallest normal number; below it the unit in the last place is constant.
MIN_NORMAL_EXPONENTS = {"fp32": -126, "fp16": -14, "bf16": -126}


def round_to_type(x: NDArray[Any], precision: str) -> NDArray[np.float64]:
    """Round to the nearest number of the type ``fp32``, ``fp16`` or ``bf16``, ties to even; return
    float64, with overflow as infinity. For ``bf16`` float64 is first rounded to float32.

    Example:
        >>> round_to_type(np.array([1.00390625, 1.01171875, 70000.0]), "bf16").tolist()
        [1.0, 1.015625, 70144.0]
        >>> round_to_type(np.array([1.0002, 70000.0]), "fp16").tolist()
        [1.0, inf]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if precision == "fp16":
            return np.asarray(x).astype(np.float16).astype(np.float64)
        single = np.asarray(x).astype(np.float32)
        if precision == "fp32":
            return single.astype(np.float64)
        # bfloat16 is the upper half of float32; a NaN must not be carried over into infinity.
        bits = single.view(np.uint32)
        carried = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
        upper = carried.astype(np.uint32).view(np.float32)
        return np.where(np.isnan(single), single, upper).astype(np.float64)


def ulp(x: NDArray[Any], precision: str) -> NDArray[np.float64]:
    """Return the unit in the last place of each number: the distance of |x| to the next larger
    number of the type; never below that of the smallest normal number."""
    size, least = np.abs(np.asarray(x, np.float64)), MIN_NORMAL_EXPONENTS[precision]
    _, exponent = np.frexp(np.maximum(size, 2.0**least))  # |x| = m·2ᵉ with m in [1/2, 1)
    unit: NDArray[np.float64] = np.ldexp(2 * ROUNDOFF[precision], exponent - 1)
    return unit


def is_representable(x: NDArray[Any], precision: str) -> bool:
    """Return whether every number is exactly representable in the type; nan and infinities are."""
    return bool(
        np.array_equal(round_to_type(x, precision), np.asarray(x, np.float64), equal_nan=True)
    )
