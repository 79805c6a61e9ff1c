"""Find the node that holds up the others, and share the work by speed, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Factor by which a rank is busy longer than the others if it is a bottleneck.
THRESHOLD = 1.2


def measure(
    comm: Any,
    clock: Callable[[], float],
    compute: Callable[[], None],
    transfer: Callable[[], None],
    rounds: int,
) -> Tensor:
    """Measure how long each rank computes, sends and waits in a round.

    Args:
        comm: the communicator; ``comm.rank``, ``comm.size``, ``comm.barrier()``,
            ``comm.all_gather(x)``, ``comm.all_reduce(x)``.
        clock: returns this node's time in seconds; another node's clock is ahead or behind.
        compute, transfer: do this rank's share of a round; they return nothing.
        rounds: how many rounds count; one more comes before them, to warm up.

    Returns:
        (size, 3): for each rank the medians over the rounds of the seconds in ``compute``, in
        ``transfer``, and until the last rank is done; the same on every rank.
    """
    # solution: begin
    kept = []
    for _ in range(rounds + 1):
        begin = clock()
        compute()
        computed = clock()
        transfer()
        sent = clock()
        comm.barrier()
        kept.append([computed - begin, sent - computed, clock() - sent])
    medians = np.median(np.array(kept[1:]), axis=0)
    return torch.stack(comm.all_gather(torch.tensor(medians)))
    # solution: end


def diagnose(times: Sequence[Sequence[float]]) -> tuple[str, int]:
    """Name the bottleneck in a table of times, as `measure` returns it.

    The busiest rank computes and sends longest. It is a bottleneck if that is more than THRESHOLD
    times the median of the other ranks.

    Args:
        times: for each rank the seconds of computing, sending and waiting.

    Returns:
        ``("compute", rank)`` or ``("link", rank)``, by what the rank exceeds the median of the
        others more, in seconds; ``("none", -1)`` without a bottleneck.
    """
    # solution: begin
    table = np.array(times)
    busy = table[:, 0] + table[:, 1]
    slow = int(busy.argmax())
    others = np.delete(table, slow, axis=0)
    if busy[slow] <= THRESHOLD * np.median(others[:, 0] + others[:, 1]):
        return "none", -1
    excess = table[slow, :2] - np.median(others[:, :2], axis=0)
    return ("compute" if excess[0] >= excess[1] else "link"), slow
    # solution: end


def split_batch(n: int, seconds: Sequence[float]) -> list[int]:
    """Share n samples so that all ranks finish at about the same time.

    Args:
        seconds: how long each rank needs for a sample.

    Returns:
        a number of samples for each rank, in proportion to its speed, less than 1 from that; the
        sum is n.
    """
    # solution: begin
    speed = 1 / np.array(seconds)
    ideal = n * speed / speed.sum()
    sizes = np.floor(ideal).astype(int)
    for rank in np.argsort(sizes - ideal)[: n - int(sizes.sum())]:
        sizes[rank] += 1
    return [int(size) for size in sizes]
    # solution: end


def balanced_step(
    comm: Any, model: Any, loss_fn: Any, optimizer: Any, x: Any, y: Any, sizes: Sequence[int]
) -> None:
    """One update with the gradient of the mean loss of a whole batch, to which each rank adds its
    part: rows sizes[0] + … + sizes[rank − 1] to sizes[0] + … + sizes[rank], exclusively.

    Args:
        comm: the communicator.
        model: a `torch.nn.Module`; ``model(x)`` are the outputs.
        loss_fn: (outputs, y) → mean loss of these samples, NaN of none.
        optimizer: with ``zero_grad()`` and ``step()``.
        x, y: the whole batch, the same on every rank.
        sizes: samples of each rank; one may be 0.
    """
    # solution: begin
    first = sum(sizes[: comm.rank])
    own = slice(first, first + sizes[comm.rank])
    optimizer.zero_grad()
    if sizes[comm.rank]:
        loss_fn(model(x[own]), y[own]).backward()
    share = sizes[comm.rank] / len(x)
    for p in model.parameters():
        gradient = torch.zeros_like(p) if p.grad is None else p.grad
        p.grad = comm.all_reduce(share * gradient)
    optimizer.step()
    # solution: end
