"""How far apart two tensors are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """‖a − b‖₂ / max(‖a‖₂, ‖b‖₂) in float64; 0 for equal tensors, infinite if one is not finite.

    Raises:
        ValueError: shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    a, b = a.astype(np.float64), b.astype(np.float64)
    gap = float(np.linalg.norm(a - b))
    if gap == 0:
        return 0.0
    scale = float(max(np.linalg.norm(a), np.linalg.norm(b)))
    return gap / scale if np.isfinite(gap) and np.isfinite(scale) else float("inf")


def distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Element by element |a − b| / max(|a|, |b|); 0 where equal, infinite where not finite."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: not finite, so infinitely far apart
        gap, scale = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
        out: NDArray[np.float64] = np.divide(gap, scale, out=np.zeros_like(gap), where=gap != 0)
    out[~np.isfinite(out)] = np.inf
    return out
