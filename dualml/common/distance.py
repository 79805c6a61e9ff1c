"""Measure how far apart two tensors are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Elements per block, which bounds the size of the float64 copies.
BLOCK_ELEMENTS = 1 << 22
#: Elements per block of `blocked_distance`: float64 copies of two blocks stay in a core's cache.
#: OpenBLAS shares longer products among threads that wait for one another.
CACHED_ELEMENTS = 1 << 13
#: Blocks that one thread takes at once.
BLOCKS_PER_TASK = 256


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
    return divide_norms(gap, lengths)


def divide_norms(gap: float, lengths: Sequence[float]) -> float:
    """Return the norm of a difference relative to the larger of two lengths; 0 if it is 0, infinite
    if a number is not finite."""
    if gap == 0:
        return 0.0
    scale = max(lengths)
    return gap / scale if math.isfinite(gap) and math.isfinite(scale) else float("inf")


def blocked_distance(a: NDArray[Any], b: NDArray[Any], threads: int = 1) -> float:
    """Return what `distance` does, several times as fast for large arrays. The arrays must have one
    shape, which is not checked, and at least one element.

    The last digit may be another one, because the norms are added up in other blocks.

    Args:
        threads: number of threads that share the work.
    """
    a, b = a.reshape(-1), b.reshape(-1)
    step = CACHED_ELEMENTS * BLOCKS_PER_TASK
    starts = range(0, a.size, step)

    def sum_squares(start: int) -> tuple[float, float, float]:
        """Return the sums of (a − b)², a² and b² of some blocks."""
        end = min(start + step, a.size)
        x, y = (np.empty(min(CACHED_ELEMENTS, end - start)) for _ in range(2))
        off, left, right = 0.0, 0.0, 0.0
        for at in range(start, end, CACHED_ELEMENTS):
            count = min(CACHED_ELEMENTS, end - at)
            u, v = x[:count], y[:count]
            np.copyto(u, a[at : at + count])
            np.copyto(v, b[at : at + count])
            left += float(u @ u)
            right += float(v @ v)
            np.subtract(u, v, out=u)
            off += float(u @ u)
        return off, left, right

    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            sums = list(pool.map(sum_squares, starts))
    else:
        sums = [sum_squares(start) for start in starts]
    off, *lengths = (math.sqrt(sum(of_parts)) for of_parts in zip(*sums, strict=True))
    return divide_norms(off, lengths)


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
