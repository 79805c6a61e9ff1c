"""Lab 4: a model in two stages, and layers cut across ranks, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def train_step(
    comm: Any,
    stage: Any,
    loss_fn: Any,
    optimizer: Any,
    x: Any,
    y: Any,
    micro_batches: int,
    width: int,
) -> float | None:
    """One update of a model whose first half is on rank 0 and whose second half is on rank 1.

    The batch is cut into equal micro-batches. Rank 0 sends the activations of each, rank 1 sends
    back the gradient of the loss with respect to them; the update is that of the mean loss of the
    whole batch, as if both stages were in one process.

    Args:
        comm: ``comm.rank``, and ``comm.exchange({to: x}, {from: like})``: sends x and returns
            ``{from: y}`` with the y that came, of the shape of ``like``; either may be empty ({}).
        stage: this rank's half, a `torch.nn.Module`.
        loss_fn: (outputs, y) → mean loss of these samples.
        optimizer: of this rank's parameters: ``zero_grad()``, ``step()``.
        x: (N, features), on rank 0; None on rank 1.
        y: (N, outputs), on rank 1; None on rank 0.
        micro_batches: how many; N is a multiple of it.
        width: the activations are (samples, width).

    Returns:
        the mean loss of the batch before the update on rank 1, None on rank 0.
    """
    # your code: begin
    losses = []
    size = (len(x) if comm.rank == 0 else len(y)) // micro_batches
    for k in range(micro_batches):
        rows = slice(k * size, (k + 1) * size)
        optimizer.zero_grad()
        if comm.rank == 0:
            a = stage(x[rows])
            comm.exchange({1: a.detach()}, {})
            a.backward(comm.exchange({}, {1: torch.empty(size, width)})[1])
        else:
            a = comm.exchange({}, {0: torch.empty(size, width)})[0].requires_grad_()
            loss = loss_fn(stage(a), y[rows]) / micro_batches
            loss.backward()
            comm.exchange({0: a.grad}, {})
            losses.append(loss.item())
        optimizer.step()
    return sum(losses) if comm.rank == 1 else None
    # your code: end


class ColumnLinear:
    """y = x·Wᵀ + b whose output features are sharded: rank r computes its part of y.

    Rank r of n keeps rows r·out/n to (r + 1)·out/n of W, and of b.

    Args:
        comm: ``comm.rank``, ``comm.size``, ``comm.all_reduce(x)`` (the sum over the ranks).
        weight: W whole, (out, in); out is a multiple of n.
        bias: b whole, (out,).

    Attributes:
        weight, bias: this rank's parts.
        weight_grad, bias_grad: their gradients, after `backward`.
    """

    def __init__(self, comm: Any, weight: Tensor, bias: Tensor) -> None:
        self.comm = comm
        # your code: begin
        rows = weight.shape[0] // comm.size
        mine = slice(comm.rank * rows, (comm.rank + 1) * rows)
        self.weight = weight[mine].clone()
        self.bias = bias[mine].clone()
        # your code: end

    def forward(self, x: Tensor) -> Tensor:
        """x (samples, in), the same on every rank → this rank's part of y, (samples, out/n)."""
        # your code: begin
        self.x = x
        return x @ self.weight.T + self.bias
        # your code: end

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to this rank's part of y → that with respect to x, (samples, in),
        the same on every rank; the gradients of the parameters are kept."""
        # your code: begin
        self.weight_grad = gradient.T @ self.x
        self.bias_grad = gradient.sum(0)
        return self.comm.all_reduce(gradient @ self.weight)
        # your code: end


class RowLinear:
    """y = x·Wᵀ + b whose input features are sharded: rank r has its part of x.

    Rank r of n keeps columns r·in/n to (r + 1)·in/n of W, and b whole.

    Args:
        comm, weight, bias: as of `ColumnLinear`; in is a multiple of n.

    Attributes:
        weight, bias, weight_grad, bias_grad: as of `ColumnLinear`.
    """

    def __init__(self, comm: Any, weight: Tensor, bias: Tensor) -> None:
        self.comm = comm
        # your code: begin
        columns = weight.shape[1] // comm.size
        mine = slice(comm.rank * columns, (comm.rank + 1) * columns)
        self.weight = weight[:, mine].clone()
        self.bias = bias.clone()
        # your code: end

    def forward(self, x: Tensor) -> Tensor:
        """Map this rank's part of x, (samples, in/n), to y (samples, out), equal on every rank."""
        # your code: begin
        self.x = x
        return self.comm.all_reduce(x @ self.weight.T) + self.bias
        # your code: end

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to y → that with respect to this rank's part of x; the gradients of
        the parameters are kept."""
        # your code: begin
        self.weight_grad = gradient.T @ self.x
        self.bias_grad = gradient.sum(0)
        return gradient @ self.weight
        # your code: end
