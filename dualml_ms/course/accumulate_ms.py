"""Accumulated gradients of micro-batches with unequal numbers of tokens, in MindSpore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor, ops

#: Label of a position that is padding, not a token.
IGNORED = -100


def train_epoch(
    comm: Any,
    net: Any,
    optimizer: Any,
    micro_batches: Sequence[tuple[Tensor, Tensor]],
    k: int,
    max_norm: float,
) -> list[float]:
    """Train one epoch: an update after every k micro-batches, and one for the rest at the end.

    An update has the gradient of the mean loss of all real tokens of its micro-batches on all
    ranks, scaled down to the norm ``max_norm`` if its norm is larger.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.all_reduce(x)``,
            ``comm.all_gather(x)``, ``comm.broadcast(x, root)``.
        net: a `mindspore.nn.Cell`; ``net(x)`` (B, T, C) are the logits.
        optimizer: called with the gradients, in the order of ``net.trainable_params()``.
        micro_batches: this rank's (x, y), as many as on every rank; y (B, T) are classes, IGNORED
            where there is padding; some may have no token at all, but not all of an update's.

    Returns:
        for each update the mean loss of its real tokens on all ranks; the same on every rank.
    """

    # solution: begin
    def forward(x, y):
        logits = net(x)
        logits, y = logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
        return ops.cross_entropy(logits, y, ignore_index=IGNORED, reduction="sum")

    weights = net.trainable_params()
    loss_and_gradients = ms.value_and_grad(forward, None, weights)
    losses: list[float] = []
    sums = [ops.zeros_like(p) for p in weights]
    loss_sum, tokens = ms.Tensor(0.0, ms.float32), 0
    for i, (x, y) in enumerate(micro_batches, 1):
        loss, gradients = loss_and_gradients(x, y)
        sums = [s + g for s, g in zip(sums, gradients, strict=True)]
        loss_sum = loss_sum + loss
        tokens += int((y != IGNORED).sum())
        if i % k and i < len(micro_batches):
            continue
        total = comm.all_reduce(ms.Tensor(float(tokens), ms.float32))
        losses.append(float(comm.all_reduce(loss_sum) / total))
        mean = [comm.all_reduce(s) / total for s in sums]
        norm = ops.sqrt(sum((g**2).sum() for g in mean))
        if norm > max_norm:
            mean = [g * (max_norm / norm) for g in mean]
        optimizer(tuple(mean))
        sums = [ops.zeros_like(p) for p in weights]
        loss_sum, tokens = ms.Tensor(0.0, ms.float32), 0
    return losses
    # solution: end
