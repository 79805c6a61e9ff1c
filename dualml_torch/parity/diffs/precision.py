"""Probes of mixed precision and loss scaling in PyTorch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn, tensor

from dualml.parity.diffs.inputs import class_indices, normal


def integer_linear() -> nn.Linear:
    """Make a layer of 8 inputs and 4 outputs, without bias, whose weights are integers from 0 to 4,
    so that no type has to round the products."""
    layer = nn.Linear(8, 4, bias=False)
    layer.weight.data = tensor(class_indices(5, 4, 8).astype(np.float32))
    return layer


def integer_inputs() -> torch.Tensor:
    """Make inputs (6, 8) of integers from 0 to 4, in float32."""
    return tensor(class_indices(5, 6, 8, seed=1).astype(np.float32))


def amp_output_type() -> NDArray:
    """Run the probe "What a layer gives out under automatic mixed precision" in PyTorch and return
    an output in its own type. `torch.autocast` leaves the output of a linear layer in low
    precision; the next layer gets float16."""
    layer = integer_linear()
    with torch.autocast("cpu", torch.float16):
        return layer(integer_inputs()).detach().numpy()


def amp_output_type_equal() -> NDArray:
    """Run the probe "What a layer gives out under automatic mixed precision" in PyTorch, written to
    agree with MindSpore, and return an output in its own type. PyTorch: `.float()` after the
    layer."""
    layer = integer_linear()
    with torch.autocast("cpu", torch.float16):
        return layer(integer_inputs()).float().detach().numpy()


def embedding_type() -> NDArray:
    """Run the probe "Type of what an Embedding gives out" in PyTorch and return an output (3, 2) in
    its own type. Its table is in float16, and so is its output."""
    layer = nn.Embedding(6, 2, dtype=torch.float16)
    layer.weight.data = tensor(class_indices(5, 6, 2).astype(np.float16))
    return layer(tensor([0, 2, 5])).detach().numpy()


def amp_norm() -> NDArray:
    """Run the probe "Norms under automatic mixed precision on a CPU" in PyTorch and return the
    norm's output (6, 4). On a CPU `torch.autocast` has norms and softmax on none of its lists: they
    take float16 and give float16. On CUDA they are float32."""
    layer, norm = integer_linear(), nn.LayerNorm(4)
    with torch.autocast("cpu", torch.float16):
        return norm(layer(integer_inputs())).float().detach().numpy()


def amp_norm_equal() -> NDArray:
    """Run the probe "Norms under automatic mixed precision on a CPU" in PyTorch, written to agree
    with MindSpore, and return the norm's output (6, 4). PyTorch: leave the region of autocast for
    the norm, and give it `x.float()`."""
    layer, norm = integer_linear(), nn.LayerNorm(4)
    with torch.autocast("cpu", torch.float16):
        y = layer(integer_inputs())
    return norm(y.float()).detach().numpy()


def amp_bfloat16() -> NDArray:
    """Run the probe "bfloat16 on a CPU" in PyTorch and return an output (6, 4). `torch.autocast`
    runs products, convolutions and attention in bfloat16."""
    x, weight = tensor(normal(6, 8)), tensor(normal(4, 8, seed=1))
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, weight).float().numpy()


def loss_scale_start() -> float:
    """Run the probe "First value of a dynamic loss scale" in PyTorch and return the scale.
    `GradScaler` starts at 2¹⁶ and doubles after 2,000 good updates."""
    return torch.amp.GradScaler("cpu").get_scale()


def loss_scale_least(least: float | None = None) -> float:
    """Run the probe "How far a dynamic loss scale may fall" in PyTorch and return the scale after
    20 overflows. It is halved at every overflow without end: after 20 from 65536 it is 0.0625. With
    ``least`` it is set by hand and stays at least that."""
    scaler, weight = torch.amp.GradScaler("cpu"), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.detach())
    for _ in range(20):
        weight.grad = torch.full((1,), torch.inf)
        scaler.step(optimizer)
        scaler.update(None if least is None else max(least, scaler.get_scale() / 2))
    return scaler.get_scale()


def loss_scale_least_equal() -> float:
    """Run the probe "How far a dynamic loss scale may fall" in PyTorch, written to agree with
    MindSpore, and return the scale after 20 overflows. PyTorch: after an overflow
    `scaler.update(max(1.0, scaler.get_scale() / 2))`; a scale that low means that the training has
    failed anyway."""
    return loss_scale_least(least=1.0)


def train_three_updates(scaler: torch.amp.GradScaler, size: float = 1.0) -> NDArray:
    """Return the weight (4, 8) of a linear layer after three updates of SGD with a loss scaled by
    ``scaler``, which may skip some, on six random samples times ``size``."""
    layer = nn.Linear(8, 4, bias=False)
    layer.weight.data = tensor(normal(4, 8))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x, y = tensor(size * normal(6, 8, seed=1)), tensor(normal(6, 4, seed=2))
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(layer(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    return layer.weight.detach().numpy()


def model_dynamic_loss_scale() -> NDArray:
    """Run the probe "Dynamic loss scaling by Model on a CPU" in PyTorch and return the weight
    (4, 8) after three updates. `GradScaler("cpu")` works."""
    return train_three_updates(torch.amp.GradScaler("cpu"))


def fixed_loss_scale() -> NDArray:
    """Run the probe "Who takes a fixed loss scale off again" in PyTorch and return the weight (4,
    8) after three updates. `GradScaler.step` divides the gradients."""
    return train_three_updates(torch.amp.GradScaler("cpu", init_scale=1024.0))


def overflowing_update() -> NDArray:
    """Run the probe "An update whose gradients overflow" in PyTorch and return the weight (4, 8)
    after three updates. `GradScaler.step` skips it: the weights stay as they were."""
    return train_three_updates(torch.amp.GradScaler("cpu", init_scale=1e38), size=100.0)


def unscale_in_place() -> NDArray:
    """Run the probe "Where unscaled gradients are" in PyTorch and return the gradient (3,).
    `scaler.unscale_(optimizer)` changes `p.grad` in place."""
    scaler, weight = torch.amp.GradScaler("cpu", init_scale=1024.0), nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale((weight * tensor(normal(3))).sum()).backward()
    scaler.unscale_(optimizer)
    assert weight.grad is not None
    return weight.grad.numpy()
