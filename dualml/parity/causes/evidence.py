"""Find simple relations between two arrays whose difference no mutation explains."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.parity.models.gap import gap

#: A relation holds if it leaves at most this share of the difference.
MAX_RESIDUAL_SHARE = 0.01
#: Maximum share of differing elements whose positions are reported.
MAX_DIFFERING_SHARE = 0.5


def find_relations(a: Array, b: Array) -> list[dict[str, Any]]:
    """Return the relations that hold between two float arrays of the same size, in the order of the
    list below; an empty list for other arrays, a single element or numbers that are not finite.

    Returns:
        Rows ``{"key", …}``: ``negative`` (b = −a), else ``ratio`` (b = value · a), ``offset`` (b =
            a + value), ``shifted`` (``axis``, ``by``: 1 or −1), ``permuted`` (the same numbers in
            another order; only without a row so far), ``some`` (only part of the elements differs,
            see `partial_difference`).
    """
    rows: list[dict[str, Any]] = []
    if a.size != b.size or a.dtype.kind != "f" or b.dtype.kind != "f" or a.size < 2:
        return rows
    x = a.astype(np.float64)
    y = b.astype(np.float64).reshape(a.shape)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return rows
    allowed = MAX_RESIDUAL_SHARE * gap(x, y)
    size = float((x * x).sum())
    c = float((x * y).sum()) / size if size else 0.0
    if gap(-x, y) < allowed:
        rows.append({"key": "negative"})
    elif c and gap(c * x, y) < allowed:
        rows.append({"key": "ratio", "value": c})
    offset = float((y - x).mean())
    if gap(x + offset, y) < allowed:
        rows.append({"key": "offset", "value": offset})
    for axis, length in enumerate(x.shape):
        for by in (1, -1):
            if length > 2 and is_shifted(x, y, axis, by, allowed):
                rows.append({"key": "shifted", "axis": axis, "by": by})
    if not rows and gap(np.sort(x.ravel()), np.sort(y.ravel())) < allowed:
        rows.append({"key": "permuted"})
    return rows + partial_difference(x, y)


def is_shifted(x: Array, y: Array, axis: int, by: int, allowed: float) -> bool:
    """Return whether ``y`` is ``x`` shifted by one along an axis (towards higher indices if ``by``
    > 0), ignoring the border.

    Args:
        allowed: relative distance below which they count as equal.
    """
    n = x.shape[axis]
    left = np.take(x, range(n - 1) if by > 0 else range(1, n), axis)
    right = np.take(y, range(1, n) if by > 0 else range(n - 1), axis)
    return gap(left, right) < allowed


def partial_difference(x: Array, y: Array) -> list[dict[str, Any]]:
    """Return one row ``some`` that says which elements differ by more than a hundredth of the
    largest difference, if fewer than half of them do; else an empty list.

    ``axis`` and the first eight ``indices`` name an axis of which at most half the indices differ;
    None and empty if there is none.
    """
    off = np.abs(x - y)
    off = off > MAX_RESIDUAL_SHARE * off.max()
    share = float(off.mean())
    if not 0 < share < MAX_DIFFERING_SHARE:
        return []
    for axis in range(x.ndim):
        others = tuple(i for i in range(x.ndim) if i != axis)
        indices = np.flatnonzero(off.any(axis=others))
        if len(indices) <= x.shape[axis] // 2:
            return [
                {
                    "key": "some",
                    "share": share,
                    "axis": axis,
                    "indices": [int(i) for i in indices[:8]],
                }
            ]
    return [{"key": "some", "share": share, "axis": None, "indices": []}]
