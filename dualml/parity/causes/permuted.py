"""An order in which the elements of one value are those of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap

Array = NDArray[Any]
#: Elements of an array in which an order is looked for.
MOST = 1 << 17
#: Of fewer elements, an order may be found by chance.
FEW = 4
#: Elements that are so near to each other are one, but for rounding.
NEAR = 1e-4


def orders(x: Array, y: Array) -> Iterator[tuple[Any, ...]]:
    """``("take", axis, *order)`` of slices along one axis, and ``("arrange", *order)`` of the
    elements of each sample, with which ``x`` becomes ``y``."""
    if x.size != y.size or x.dtype.kind != "f" or not FEW <= x.size <= MOST or x.ndim < 1:
        return
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return
    if x.shape == y.shape:
        for axis in range(x.ndim):
            columns = [np.moveaxis(one, axis, -1).reshape(-1, one.shape[axis]) for one in (x, y)]
            if (order := of_columns(*columns)) is not None:
                yield ("take", axis, *order)
                return
    if x.ndim > 1 and y.ndim > 1 and len(x) == len(y) > 1:
        order = of_columns(x.reshape(len(x), -1), y.reshape(len(y), -1))
        if order is not None:
            yield ("arrange", *order)


def of_columns(x: Array, y: Array) -> list[int] | None:
    """The order of the columns of ``x`` that makes it ``y``; None where there is none, or where
    they are in order."""
    if x.shape[1] < 2 or x.size < FEW:
        return None
    # One number for each column: equal ones only by chance.
    weights = np.random.default_rng(0).standard_normal(len(x))
    ours, theirs = weights @ x, weights @ y
    order = np.empty(x.shape[1], np.int64)
    order[np.argsort(theirs, kind="stable")] = np.argsort(ours, kind="stable")
    if np.array_equal(order, np.arange(len(order))) or gap(x, y) <= NEAR:
        return None
    return [int(n) for n in order] if gap(x[:, order], y) <= NEAR else None
