"""Lab 3: data parallel training on several ranks."""

from __future__ import annotations

from typing import Any

import torch


@torch.no_grad()
def same_start(comm: Any, model: Any) -> None:
    """Every rank goes on with rank 0's parameters and buffers, in place.

    Args:
        comm: the communicator.
        model: a `torch.nn.Module`, another one on every rank.
    """
    # your code: begin
    for tensor in list(model.parameters()) + list(model.buffers()):
        tensor.copy_(comm.broadcast(tensor))
    # your code: end


def train_step(comm: Any, model: Any, loss_fn: Any, optimizer: Any, x: Any, y: Any) -> float:
    """One update, the same on every rank, with the gradient of the mean loss of all ranks' samples:
    g = Σ_r (n_r / Σ_q n_q) g_r, where g_r is that of the mean of rank r's n_r samples.

    Args:
        comm: the communicator.
        model: a `torch.nn.Module`; ``model(x)`` are the outputs.
        loss_fn: (outputs, y) → mean loss of these samples.
        optimizer: with ``zero_grad()`` and ``step()``.
        x, y: this rank's samples, (n_r, …) each; n_r may be another one on every rank and in every
            update, and 0 on some.

    Returns:
        the mean loss of all ranks' samples, before the update; the same on every rank.
    """
    # your code: begin
    optimizer.zero_grad()
    n = torch.tensor(float(x.shape[0]))
    N = comm.all_reduce(n)
    loss = torch.tensor(0.0)
    if x.shape[0] != 0:
        loss = loss_fn(model(x), y)
        loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.copy_(comm.all_reduce(p.grad * n / N))
    optimizer.step()
    return comm.all_reduce(loss.detach() * n / N).item()
    # your code: end
