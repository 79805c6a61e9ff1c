"""Lab 3: data parallel training on several ranks."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import ops


def same_start(comm: Any, net: Any) -> None:
    """Every rank goes on with rank 0's parameters, trained or not, in place.

    Args:
        comm: the communicator.
        net: a `mindspore.nn.Cell`, another one on every rank.
    """
    # your code: begin
    for p in net.get_parameters():
        ops.assign(p, comm.broadcast(p.value()))
    # your code: end


def train_step(comm: Any, net: Any, loss_fn: Any, optimizer: Any, x: Any, y: Any) -> float:
    """One update, the same on every rank, with the gradient of the mean loss of all ranks' samples:
    g = Σ_r (n_r / Σ_q n_q) g_r, where g_r is that of the mean of rank r's n_r samples.

    Args:
        comm: the communicator.
        net: a `mindspore.nn.Cell`; ``net(x)`` are the outputs.
        loss_fn: (outputs, y) → mean loss of these samples.
        optimizer: called with the gradients, in the order of ``net.trainable_params()``.
        x, y: this rank's samples, (n_r, …) each; n_r may be another one on every rank and in every
            update, and 0 on some.

    Returns:
        the mean loss of all ranks' samples, before the update; the same on every rank.
    """

    # your code: begin
    weights = net.trainable_params()
    n = len(x)
    N = n * comm.size

    def compute(inputs, targets):
        return loss_fn(net(inputs), targets)

    if n == 0:
        loss = ms.Tensor(0.0, ms.float32)
        grads = tuple(ops.zeros_like(w) for w in weights)
        weight = 0.0
    else:
        loss, grads = ms.value_and_grad(compute, None, weights)(x, y)
        weight = n / N
    optimizer(tuple(comm.all_reduce(g * weight) for g in grads))
    return float(comm.all_reduce(loss * weight))
    # your code: end
