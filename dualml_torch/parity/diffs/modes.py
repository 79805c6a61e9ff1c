"""Probes of modes and gradients in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dualml.parity.diffs.inputs import normal


def train_mode_default() -> NDArray:
    """Run the probe "Training mode by default" in PyTorch and return the output (8, 4) of a new
    layer. A module is in training mode until `eval()`: BatchNorm uses the batch."""
    layer = nn.BatchNorm1d(4)
    return layer(torch.tensor(normal(8, 4) + 1)).detach().numpy()


def dropout_eval() -> float:
    """Return the share of ones that a new `nn.Dropout(p=0.5)`, whose mode nobody set, turns into
    zeros."""
    layer = nn.Dropout(p=0.5)
    return (layer(torch.ones(100_000)) == 0).float().mean().item()


def training_flag_nested() -> bool:
    """Run the probe "A layer exchanged after `set_train()`" in PyTorch and return whether the new
    layer is in training mode. A new layer is in training mode, like the net around it."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net.train()
    net[1] = nn.Dropout(p=0.5)
    return net[1].training


def graph_float_constants() -> NDArray:
    """Run the probe "Python floats in float64 arithmetic" in PyTorch and return the product (8,).
    `x * 0.1` uses the double 0.1."""
    x = torch.tensor(normal(8), dtype=torch.float64)
    return (x * 0.1).numpy()


def jit_side_effects() -> int:
    """Run the probe "Python side effects under `jit`" in PyTorch and return the length of the list
    after three calls. A list that the forward pass appends to grows with each call."""
    seen = []

    def double(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return 2 * x

    for _ in range(3):
        double(torch.ones(2))
    return len(seen)


def jit_constants() -> NDArray:
    """Run the probe "Settings changed after compilation" in PyTorch and return the output after the
    change. Eager code reads a setting at each call."""
    settings = {"scale": 1.0}

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * settings["scale"]

    scaled(torch.ones(2))
    settings["scale"] = 5.0
    return scaled(torch.ones(2)).numpy()


def jit_numpy_random() -> list[float]:
    """Run the probe "NumPy's random numbers under `jit`" in PyTorch and return three calls' outputs
    for the input 1. Each call draws a new number."""
    random = np.random.default_rng(0)

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x * random.random()

    return [float(noisy(torch.tensor(1.0))) for _ in range(3)]


def no_grad() -> NDArray:
    """Run the probe "Targets computed without a gradient" in PyTorch and return the gradient (3,).
    What is computed in `torch.no_grad()` counts as a constant."""
    weight = nn.Parameter(torch.tensor(normal(3)))
    with torch.no_grad():
        target = weight.square()
    (weight * target).sum().backward()
    return weight.grad.numpy()


def detach() -> NDArray:
    """Run the probe "`Tensor.detach`" in PyTorch and return the values (3,). `x.detach()` cuts a
    tensor off from its graph."""
    x = torch.tensor(normal(3), requires_grad=True)
    return x.detach().numpy()


def gradient_accumulation() -> NDArray:
    """Run the probe "Gradients that add up" in PyTorch and return the weight (4,) after one update.
    `backward()` adds to `.grad` until `zero_grad()`."""
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.tensor(normal(2, 4)):
        (weight * batch).sum().backward()
    optimizer.step()
    return weight.detach().numpy()


def value_and_grad_position() -> tuple[Any, ...]:
    """Run the probe "`value_and_grad(…, weights=…)`" in PyTorch and return a tuple of the
    gradients. `autograd.grad(loss, weights)` gives one gradient for each weight."""
    weight, x = nn.Parameter(torch.ones(3)), torch.tensor(normal(3))
    gradients = torch.autograd.grad((weight * x).sum(), [weight])
    return tuple(gradient.numpy() for gradient in gradients)


def value_and_grad_order() -> tuple[float, float]:
    """Run the probe "Value first or gradient first" in PyTorch and return both results for x³ at 2
    as a pair. `torch.func.grad_and_value` returns the gradient first."""
    first, second = torch.func.grad_and_value(lambda x: x**3)(torch.tensor(2.0))
    return float(first), float(second)


def value_and_grad_order_equal() -> tuple[float, float]:
    """Run the probe "Value first or gradient first" in PyTorch, written to agree with MindSpore,
    and return value and gradient of x³ at 2. Unpack in the order of the name."""
    gradient, value = torch.func.grad_and_value(lambda x: x**3)(torch.tensor(2.0))
    return float(value), float(gradient)


def grad_position_tuple() -> NDArray:
    """Return the gradient of one argument that is named by a tuple, as an array of the tuple's
    items: (1, 3), because a tuple of one gradient is returned."""
    gradients = torch.func.grad(lambda x: x.square().sum(), argnums=(0,))(torch.ones(3))
    return np.asarray([gradient.numpy() for gradient in gradients])


def has_aux() -> NDArray:
    """Run the probe "A step that returns loss and logits" in PyTorch and return the gradient (4,).
    `loss.backward()` differentiates the loss alone."""

    def step(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = 3 * weight
        return logits.square().mean(), logits

    weight = nn.Parameter(torch.tensor(normal(4)))
    loss, _ = step(weight)
    loss.backward()
    return weight.grad.numpy()


def non_scalar_loss() -> NDArray:
    """Run the probe "The gradient of a loss that is not a scalar" in PyTorch, where it raises
    RuntimeError; else return the gradient (4,). `backward()` raises a RuntimeError."""
    weight = nn.Parameter(torch.tensor(normal(4)))
    weight.square().backward()
    return weight.grad.numpy()


def non_scalar_loss_equal() -> NDArray:
    """Run the probe "The gradient of a loss that is not a scalar" in PyTorch, written to agree with
    MindSpore, and return the gradient (4,). Reduce the loss explicitly, on both sides."""
    weight = nn.Parameter(torch.tensor(normal(4)))
    weight.square().mean().backward()
    return weight.grad.numpy()


def unused_input_gradient() -> tuple[Any, ...]:
    """Run the probe "The gradient of what was not used" in PyTorch, where it raises RuntimeError;
    else return a tuple of both gradients. `autograd.grad` raises a RuntimeError unless
    `allow_unused` or `materialize_grads` is set."""
    used, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    gradients = torch.autograd.grad(used.square().sum(), [used, unused])
    return tuple(gradient.numpy() for gradient in gradients)


def unused_input_gradient_equal() -> tuple[Any, ...]:
    """Run the probe "The gradient of what was not used" in PyTorch, written to agree with
    MindSpore, and return a tuple of both gradients. torch: `materialize_grads=True` gives the
    zeros; MindSpore: check for gradients that are all zero."""
    used, unused = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    loss = used.square().sum()
    gradients = torch.autograd.grad(loss, [used, unused], materialize_grads=True)
    return tuple(gradient.numpy() for gradient in gradients)


def integer_gradient() -> NDArray:
    """Run the probe "The gradient with respect to integers" in PyTorch, where it raises
    RuntimeError; else return the gradient (2,). Integers cannot require a gradient: a
    RuntimeError."""
    x = torch.tensor([1, 2], requires_grad=True)
    (x.square().sum() / 2).backward()
    return x.grad.numpy()


def integer_gradient_equal() -> NDArray:
    """Run the probe "The gradient with respect to integers" in PyTorch, written to agree with
    MindSpore, and return the gradient (2,). Make the tensor floating-point first."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (x.square().sum() / 2).backward()
    return x.grad.numpy()


def softmax_gradient() -> NDArray:
    """Run the probe "The gradient of softmax after an axis of length one" in PyTorch and return the
    gradient. Right for every shape."""
    x = torch.tensor(normal(2, 1, 1, 1, 3, 4), requires_grad=True)
    torch.softmax(x, -1).square().sum().backward()
    return x.grad.numpy()
