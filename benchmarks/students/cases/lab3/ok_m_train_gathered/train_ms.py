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
    grad_fn = ms.value_and_grad(lambda a, b: loss_fn(net(a), b), None, weights)
    if x.shape[0] == 0:
        loss = ms.Tensor(0.0, ms.float32)
        grads = [ops.zeros(w.shape, w.dtype) for w in weights]
    else:
        loss, grads = grad_fn(x, y)
    counts = [float(c) for c in comm.all_gather(ms.Tensor(float(x.shape[0]), ms.float32))]
    shares = [c / sum(counts) for c in counts]

    def mix(tensor):
        return sum(share * part for share, part in zip(shares, comm.all_gather(tensor)))

    optimizer(tuple(mix(g) for g in grads))
    return float(mix(loss))
    # your code: end
