"""MindSpore's random operators draw from the shared random source."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from dualml.parity.models.rng import SharedRng
from dualml_ms.parity.rng import SharedRngMode

X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def _pynative() -> Iterator[None]:
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)  # a graph has no dispatch
    yield
    ms.set_context(mode=mode)


def drawn(function: Callable[[ms.Tensor], ms.Tensor]) -> np.ndarray:
    with SharedRngMode(SharedRng(0)):
        return function(ms.Tensor(X)).asnumpy()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.Dropout(p=0.3).set_train()(x),
        lambda x: ops.dropout(x, p=0.3),
        lambda x: ops.dropout2d(x.reshape(4, 6, 8, 1), p=0.3),
        lambda x: ops.bernoulli(x, p=0.4),
        lambda x: ops.rand(5, 3),
    ],
)
def test_the_same_seed_gives_the_same_numbers(function: Callable[[ms.Tensor], ms.Tensor]) -> None:
    np.testing.assert_array_equal(drawn(function), drawn(function))


def test_a_dropout_keeps_what_the_source_says_and_its_gradient_too() -> None:
    kept = SharedRng(0).keep_mask(X.shape, 0.25)
    np.testing.assert_allclose(drawn(lambda x: ops.dropout(x, p=0.25)), X * kept / 0.75, rtol=1e-6)

    def total(x: ms.Tensor) -> ms.Tensor:
        with SharedRngMode(SharedRng(0)):
            return (ops.dropout(x * 2, p=0.25) * 3).sum()

    found = ms.grad(total)(ms.Tensor(X)).asnumpy()
    np.testing.assert_allclose(found, 6 * kept / 0.75, rtol=1e-6)


def test_channels_are_dropped_whole() -> None:
    found = drawn(lambda x: ops.dropout2d(x.reshape(4, 6, 8, 1), p=0.5))
    zero = (found == 0).reshape(24, 8)
    assert (zero.all(1) | ~zero.any(1)).all()
    assert zero.any()
    assert not zero.all()
