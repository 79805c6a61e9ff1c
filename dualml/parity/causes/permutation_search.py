"""Find an order in which the elements of one array equal those of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.parity.models.gap import gap

#: Maximum number of elements of an array that is searched for an order.
MAX_ELEMENTS = 1 << 17
#: Minimum number of elements: in a smaller array an order may be found by chance.
MIN_ELEMENTS = 4
#: Relative distance up to which reordered elements count as equal.
REORDERED_RTOL = 1e-4


def find_element_orders(x: Array, y: Array) -> Iterator[tuple[Any, ...]]:
    """Yield at most one transform that turns ``x`` into ``y`` by reordering, within REORDERED_RTOL.

    This is ``("take", axis, *order)`` for slices along one axis, else ``("arrange", *order)`` for
    the elements of each sample. Nothing for arrays that are too small or too large, that are not
    float or finite, or that agree already.
    """
    if (
        x.size != y.size
        or x.dtype.kind != "f"
        or not MIN_ELEMENTS <= x.size <= MAX_ELEMENTS
        or x.ndim < 1
    ):
        return
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return
    if x.shape == y.shape:
        for axis in range(x.ndim):
            columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in (x, y)]
            if (order := column_order(*columns)) is not None:
                yield ("take", axis, *order)
                return
    if x.ndim > 1 and y.ndim > 1 and len(x) == len(y) > 1:
        order = column_order(x.reshape(len(x), -1), y.reshape(len(y), -1))
        if order is not None:
            yield ("arrange", *order)


def column_order(x: Array, y: Array) -> list[int] | None:
    """Return the order of the columns of ``x``, shape (rows, columns), that makes it equal to
    ``y``.

    ``y`` is about ``x[:, order]``. None if there is no such order, if the columns are in order
    already, or if there are too few elements.
    """
    if x.shape[1] < 2 or x.size < MIN_ELEMENTS:
        return None
    # One number per column; different columns have equal ones only by chance.
    weights = np.random.default_rng(0).standard_normal(len(x))
    ours, theirs = weights @ x, weights @ y
    order = np.empty(x.shape[1], np.int64)
    order[np.argsort(theirs, kind="stable")] = np.argsort(ours, kind="stable")
    if np.array_equal(order, np.arange(len(order))) or gap(x, y) <= REORDERED_RTOL:
        return None
    return [int(n) for n in order] if gap(x[:, order], y) <= REORDERED_RTOL else None
