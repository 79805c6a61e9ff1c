"""Accumulated gradients of micro-batches with unequal numbers of tokens, in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

#: Label of a position that is padding, not a token.
IGNORED = -100


def train_epoch(
    comm: Any,
    model: Any,
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
        model: a `torch.nn.Module`; ``model(x)`` (B, T, C) are the logits. Its parameters may hold
            gradients from before.
        optimizer: with ``zero_grad()`` and ``step()``.
        micro_batches: this rank's (x, y), as many as on every rank; y (B, T) are classes, IGNORED
            where there is padding; some may have no token at all, but not all of an update's.

    Returns:
        for each update the mean loss of its real tokens on all ranks; the same on every rank.
    """
    # solution: begin
    losses: list[float] = []
    optimizer.zero_grad()
    loss_sum, tokens = torch.tensor(0.0), 0
    for i, (x, y) in enumerate(micro_batches, 1):
        logits = model(x).flatten(0, 1)
        loss = cross_entropy(logits, y.flatten(), ignore_index=IGNORED, reduction="sum")
        loss.backward()
        loss_sum = loss_sum + loss.detach()
        tokens += int((y != IGNORED).sum())
        if i % k and i < len(micro_batches):
            continue
        total = comm.all_reduce(torch.tensor(float(tokens)))
        losses.append(float(comm.all_reduce(loss_sum) / total))
        for p in model.parameters():
            p.grad = comm.all_reduce(p.grad) / total
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
        if norm > max_norm:
            for p in model.parameters():
                p.grad *= max_norm / norm
        optimizer.step()
        optimizer.zero_grad()
        loss_sum, tokens = torch.tensor(0.0), 0
    return losses
    # solution: end
