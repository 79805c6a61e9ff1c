"""Lab 4: a model in two stages, and layers cut across ranks, in MindSpore."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, ops


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
        stage: this rank's half, a `mindspore.nn.Cell`.
        loss_fn: (outputs, y) → mean loss of these samples.
        optimizer: called with the gradients, in the order of ``stage.trainable_params()``.
        x: (N, features), on rank 0; None on rank 1.
        y: (N, outputs), on rank 1; None on rank 0.
        micro_batches: how many; N is a multiple of it.
        width: the activations are (samples, width).

    Returns:
        the mean loss of the batch before the update on rank 1, None on rank 0.
    """
    # your code: begin
    weights = stage.trainable_params()
    size = (x if comm.rank == 0 else y).shape[0] // micro_batches
    cut = [slice(k * size, (k + 1) * size) for k in range(micro_batches)]
    like = ops.zeros((size, width), ms.float32)
    if comm.rank == 0:
        for mine in cut:
            comm.exchange({1: stage(x[mine])}, {})
        total = None
        for mine in cut:
            gradient = comm.exchange({}, {1: like})[1]

            def pulled(part, gradient=gradient):
                return (stage(part) * gradient).sum()

            grads = ms.grad(pulled, None, weights)(x[mine])
            total = grads if total is None else [a + b for a, b in zip(total, grads)]
        optimizer(tuple(total))
        return None

    def forward(a, target):
        return loss_fn(stage(a), target) / micro_batches

    received = [comm.exchange({}, {0: ops.zeros((size, width), ms.float32)})[0] for _ in cut]
    step = ms.value_and_grad(forward, 0, weights)
    whole, total = 0.0, None
    for a, mine in zip(received, cut):
        loss, (da, grads) = step(a, y[mine])
        if mine is not cut[-1]:
            comm.exchange({0: da}, {})
        whole += float(loss)
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
    optimizer(tuple(total))
    return whole
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
        self.weight = weight[mine].copy()
        self.bias = bias[mine].copy()
        # your code: end

    def forward(self, x: Tensor) -> Tensor:
        """x (samples, in), the same on every rank → this rank's part of y, (samples, out/n)."""
        # your code: begin
        self.x = x
        return ops.matmul(x, self.weight.T) + self.bias
        # your code: end

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to this rank's part of y → that with respect to x, (samples, in),
        the same on every rank; the gradients of the parameters are kept."""
        # your code: begin
        self.weight_grad = ops.matmul(gradient.T, self.x)
        self.bias_grad = gradient.sum(axis=0)
        return self.comm.all_reduce(ops.matmul(gradient, self.weight))
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
        self.weight = weight[:, mine].copy()
        self.bias = bias.copy()
        # your code: end

    def forward(self, x: Tensor) -> Tensor:
        """Map this rank's part of x, (samples, in/n), to y (samples, out), equal on every rank."""
        # your code: begin
        self.x = x
        return self.comm.all_reduce(ops.matmul(x, self.weight.T)) + self.bias
        # your code: end

    def backward(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to y → that with respect to this rank's part of x; the gradients of
        the parameters are kept."""
        # your code: begin
        self.weight_grad = ops.matmul(gradient.T, self.x)
        self.bias_grad = gradient.sum(axis=0)
        return ops.matmul(gradient, self.weight)
        # your code: end
