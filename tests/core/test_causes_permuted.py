"""A permutation that turns one array into another is found if there is one, and never by chance."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.parity.causes.permutation_search import find_element_orders

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 6)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_in_another_order(axis: int) -> None:
    order = RNG.permutation(X.shape[axis])
    while (order == np.arange(len(order))).all():
        order = RNG.permutation(X.shape[axis])
    (found,) = find_element_orders(X, np.take(X, order, axis) * np.float32(1 + 1e-7))
    assert found == ("take", axis, *order)


def test_elements_of_each_sample_in_another_order() -> None:
    (found,) = find_element_orders(X, X.transpose(0, 2, 1).reshape(3, 4, 6))
    assert found[0] == "arrange"
    assert np.array_equal(X.reshape(3, -1)[:, list(found[1:])], X.transpose(0, 2, 1).reshape(3, -1))


@pytest.mark.parametrize(
    "y",
    [
        X,
        X + 1,
        X[:, :, ::-1] * np.float32(1.01),
        np.stack([np.roll(one, i, -1) for i, one in enumerate(X)]),  # each sample another
        X.reshape(-1)[:12],
        np.full_like(X, np.nan),
        np.zeros((3, 4, 6), np.int64),
    ],
)
def test_no_order(y: np.ndarray) -> None:
    assert list(find_element_orders(X, y)) == []
