"""Lab 2: gradients and parameters of several ranks put together, in MindSpore."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops


def by_all_reduce(comm: Any, tensors: Sequence[Tensor], samples: int) -> list[Tensor]:
    """The mean gradient over all samples of all ranks: Σ_r n_r·g_r / Σ_r n_r, by all-reduces.

    Args:
        comm: ``comm.rank``, ``comm.size``, ``comm.all_reduce(x)`` (the sum over the ranks, on every
            rank; x is left alone).
        tensors: g_r, this rank's mean gradients over its own samples, of any shapes.
        samples: n_r, another number on every rank.

    Returns:
        one tensor for each of ``tensors``, the same on every rank.
    """
    # your code: begin
    total = comm.all_reduce(Tensor(samples, ms.float32))
    return [comm.all_reduce(samples * g) / total for g in tensors]
    # your code: end


def by_gather_broadcast(comm: Any, tensors: Sequence[Tensor], samples: int) -> list[Tensor]:
    """Return the result of `by_all_reduce`, computed on rank 0 and broadcast.

    Args:
        comm: ``comm.gather(x)`` (a list of every rank's x on rank 0, None on the others),
            ``comm.broadcast(x)`` (rank 0's x on every rank; elsewhere x only tells the shape).
    """
    # your code: begin
    result = []
    for g in tensors:
        parts = comm.gather(g)
        if parts is None:
            result.append(comm.broadcast(ops.zeros_like(g)))
        else:
            result.append(comm.broadcast(ops.stack(parts).mean(axis=0)))
    return result
    # your code: end


def sum_gradients(
    comm: Any, tensors: Sequence[Tensor], samples: int, how: str = "all_reduce"
) -> list[Tensor]:
    """The mean gradient over all samples by ``all_reduce`` or by ``gather_broadcast``."""
    # your code: begin
    if how == "all_reduce":
        return by_all_reduce(comm, tensors, samples)
    return by_gather_broadcast(comm, tensors, samples)
    # your code: end


def average_parameters(comm: Any, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean of every parameter over the ranks, each rank counting once.

    Args:
        comm: ``comm.all_reduce``, ``comm.gather`` and ``comm.broadcast``, as above.
        tensors: this rank's parameters.
    """
    # your code: begin
    return [comm.all_reduce(p) / comm.size for p in tensors]
    # your code: end


def ring_all_reduce(comm: Any, tensor: Tensor) -> Tensor:
    """The sum over the ranks, on every rank, by messages to the right neighbour alone.

    The elements are cut into n nearly equal chunks. In n − 1 steps every rank sends a chunk to
    rank r + 1 and adds the one that comes from r − 1; then each chunk's sum is complete on one
    rank. In n − 1 more steps the sums go around. Each rank sends 2(n − 1) messages, in all
    2(n − 1)/n of the elements (Patarasuk & Yuan 2009).

    Args:
        comm: ``comm.rank``, ``comm.size``, ``comm.exchange({to: x}, {from: like})``: sends x, and
            returns ``{from: y}`` with the y that came, of the shape of ``like``.
        tensor: of any shape, also with fewer than n elements; it is left alone.
    """
    # your code: begin
    n, r = comm.size, comm.rank
    if n == 1:
        return tensor.copy()
    right, left = (r + 1) % n, (r - 1) % n
    chunks = [Tensor(c) for c in np.array_split(tensor.asnumpy().reshape(-1), n)]
    for step in range(n - 1):
        out, into = (r - step) % n, (r - step - 1) % n
        like = Tensor(np.zeros(chunks[into].shape, np.float32))
        came = comm.exchange({right: chunks[out]}, {left: like})[left]
        chunks[into] = Tensor(chunks[into].asnumpy() + came.asnumpy())
    for step in range(n - 1):
        out, into = (r + 1 - step) % n, (r - step) % n
        like = Tensor(np.zeros(chunks[into].shape, np.float32))
        chunks[into] = comm.exchange({right: chunks[out]}, {left: like})[left]
    whole = np.concatenate([c.asnumpy() for c in chunks])
    return Tensor(whole.reshape(tensor.shape))
    # your code: end


def measure(comm: Any, sizes: Sequence[int]) -> list[float]:
    """Seconds that an all-reduce takes, for each size.

    The first call of a size may take longer, and now and then one is disturbed: give what is
    typical of a warm one. Another rank may be late: the clock must not run before all are there.

    Args:
        comm: ``comm.all_reduce(x)``, and ``comm.barrier()``, which returns when every rank has
            called it. All ranks call the same number of times.
        sizes: bytes of the float32 tensors, multiples of 4.
    """
    # your code: begin
    seconds = []
    for size in sizes:
        x = Tensor(np.ones(size // 4, np.float32))
        comm.all_reduce(x)  # the first call of a size is slow
        times = []
        for _ in range(11):
            comm.barrier()
            start = time.perf_counter()
            comm.all_reduce(x)
            times.append(time.perf_counter() - start)
        seconds.append(median(times))
    return seconds
    # your code: end
