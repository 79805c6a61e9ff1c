"""The trap of lab 1: a PyTorch loop without ``zero_grad()`` behaves like momentum 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dualml.algorithms.optim import SGD

STEPS, LR = 12, 0.05


def train(zero: bool) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the weights after every update of a small regression, with or without
    ``zero_grad()``.

    Returns:
        The first weights, and those after each of the `STEPS` updates; arrays of shape (3,).
    """
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(STEPS, 8, 3, generator=draw), torch.randn(STEPS, 8, generator=draw)
    weight = nn.Parameter(torch.tensor([1.0, -1.0, 0.5]))
    start, after = weight.detach().numpy().copy(), []
    optimizer = torch.optim.SGD([weight], lr=LR)
    for inputs, targets in zip(x, y, strict=True):
        if zero:
            optimizer.zero_grad()
        (inputs @ weight - targets).square().mean().backward()
        optimizer.step()
        after.append(weight.detach().numpy().copy())
    return start, after


def by_rule(momentum: float) -> list[np.ndarray]:
    """Return the weights of the same training by the project's float64 rule."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(STEPS, 8, 3, generator=draw), torch.randn(STEPS, 8, generator=draw)
    rule, w = SGD(lr=LR, momentum=momentum), np.array([1.0, -1.0, 0.5])
    state, after = rule.init({"w": w}), []
    for step in range(1, STEPS + 1):
        inputs, targets = (t[step - 1].double().numpy() for t in (x, y))
        gradient = 2 / len(targets) * inputs.T @ (inputs @ w - targets)
        new, state = rule.update({"w": w}, {"w": gradient}, state, step)
        w = new["w"]
        after.append(w)
    return after


@pytest.mark.parametrize(("zero", "momentum"), [(True, 0.0), (False, 1.0)])
def test_a_loop_with_and_without_zero_grad(zero: bool, momentum: float) -> None:
    _, after = train(zero)
    np.testing.assert_allclose(after, by_rule(momentum), rtol=2e-5, atol=2e-6)


def test_the_two_differ_from_the_second_update_on() -> None:
    (_, zeroed), (_, kept) = train(True), train(False)
    np.testing.assert_array_equal(zeroed[0], kept[0])
    assert np.abs(zeroed[1] - kept[1]).max() > 1e-3
