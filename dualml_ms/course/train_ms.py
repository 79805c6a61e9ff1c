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
    # solution: begin
    for p in net.get_parameters():
        ops.assign(p, comm.broadcast(p.value(), root=0))
    # solution: end


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

    # solution: begin
    def forward(x, y):
        return loss_fn(net(x), y)

    weights = net.trainable_params()
    if len(x):
        loss, gradients = ms.value_and_grad(forward, None, weights)(x, y)
    else:  # no loss to differentiate: gradients of 0 take part all the same
        loss, gradients = ms.Tensor(0.0, ms.float32), [ops.zeros_like(p) for p in weights]
    share = len(x) / comm.all_reduce(ms.Tensor(float(len(x)), ms.float32))
    mean = [comm.all_reduce(share * g) for g in gradients]
    optimizer(tuple(mean))
    return float(comm.all_reduce(share * loss))
    # solution: end
