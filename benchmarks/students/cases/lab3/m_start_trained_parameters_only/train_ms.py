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
    for weight in net.trainable_params():
        weight.set_data(comm.broadcast(weight))
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

    def forward(x, y):
        return loss_fn(net(x), y)

    n = len(x)
    total = comm.all_reduce(ms.Tensor(n, ms.float32))
    if n > 0:
        loss, grads = ms.value_and_grad(forward, None, weights)(x, y)
    else:
        loss, grads = ms.Tensor(0.0, ms.float32), [ops.zeros_like(w) for w in weights]
    grads = tuple(comm.all_reduce(n * g) / total for g in grads)
    optimizer(grads)
    return float(comm.all_reduce(n * loss) / total)
    # your code: end
