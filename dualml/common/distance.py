"""Measure how far apart two tensors are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Elements per block, which bounds the size of the float64 copies.
BLOCK_ELEMENTS = 1 << 22


def distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return ‖a − b‖₂ / max(‖a‖₂, ‖b‖₂) in float64; 0 for equal finite tensors, infinite if either
    has a number that is not finite.

    Raises:
        ValueError: the shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    parts = range(0, a.size, BLOCK_ELEMENTS) or (0,)
    # Float64 copies of a large layer's weights would take more memory than the model.
    flat = a.ravel(), b.ravel()
    norms = [difference_norms(*(one[at : at + BLOCK_ELEMENTS] for one in flat)) for at in parts]
    gap, *lengths = (math.hypot(*of_parts) for of_parts in zip(*norms, strict=True))
    if gap == 0:
        return 0.0
    scale = max(lengths)
    return gap / scale if np.isfinite(gap) and np.isfinite(scale) else float("inf")


def difference_norms(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float, float]:
    """Return ‖a − b‖₂, ‖a‖₂ and ‖b‖₂ in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(a - b)), float(np.linalg.norm(a)), float(np.linalg.norm(b))


def elementwise_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Return |a − b| / max(|a|, |b|) per element; 0 where both are equal and finite, infinite where
    either is not finite."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: not finite, so infinitely far apart
        gap, scale = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
        out: NDArray[np.float64] = np.divide(gap, scale, out=np.zeros_like(gap), where=gap != 0)
    out[~np.isfinite(out)] = np.inf
    return out
