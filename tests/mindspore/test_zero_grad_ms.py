"""`value_and_grad` returns new gradients, so a loop cannot forget to zero them."""

from __future__ import annotations

from collections.abc import Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from dualml.algorithms.optim import SGD

STEPS, LR = 6, 0.05


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (STEPS, 8, 3) and targets (STEPS, 8)."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(STEPS, 8, 3)), draw.normal(size=(STEPS, 8))
    return x.astype(np.float32), y.astype(np.float32)


def train() -> list[np.ndarray]:
    """Return the weights after every update of a loop that zeroes nothing."""
    weight = ms.Parameter(ms.Tensor([1.0, -1.0, 0.5], ms.float32), name="w")
    optimizer = nn.SGD([weight], learning_rate=LR)
    forward = ms.value_and_grad(
        lambda x, y: ((x * weight).sum(-1) - y).square().mean(), None, optimizer.parameters
    )
    after = []
    for x, y in zip(*data(), strict=True):
        _, gradients = forward(ms.Tensor(x), ms.Tensor(y))
        ops.depend(weight, optimizer(gradients))
        after.append(weight.asnumpy().copy())
    return after


def by_rule(momentum: float) -> list[np.ndarray]:
    rule, w = SGD(lr=LR, momentum=momentum), np.array([1.0, -1.0, 0.5])
    state, after = rule.init({"w": w}), []
    for step, (x, y) in enumerate(zip(*data(), strict=True), start=1):
        new, state = rule.update({"w": w}, {"w": 2 / 8 * x.T @ (x @ w - y)}, state, step)
        w = new["w"]
        after.append(w)
    return after


@pytest.fixture
def pynative() -> Iterator[None]:
    """Use PyNative mode, whatever mode an earlier test of this process has set."""
    before = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=before)


@pytest.mark.usefixtures("pynative")
def test_nothing_adds_up() -> None:
    after = train()
    np.testing.assert_allclose(after, by_rule(0.0), rtol=2e-5, atol=2e-6)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(after, by_rule(1.0), rtol=2e-5, atol=2e-6)
