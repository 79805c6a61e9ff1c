"""The batch of an update as the ranks share it, and its mean loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Backend

#: Samples of an update: indices of all ranks, or one array of indices per rank.
Batch = Array | Sequence[Array]


def join_parts(batch: Batch) -> Array:
    """Return the samples of all ranks as one array: a whole batch itself, or the parts in the order
    of ranks."""
    return batch if isinstance(batch, np.ndarray) else np.concatenate(batch)


def gather_mean_losses(
    backend: Backend, comm: Communicator, lazy: Sequence[tuple[Any, float]]
) -> Array:
    """Return the mean losses of the global batches, (updates,), on every rank: the ranks' losses,
    weighted by their shares, summed in the order of ranks. All ranks call it.

    Args:
        lazy: for each update, this rank's loss (None without samples) and its share of the batch.
    """
    losses = np.zeros(len(lazy))
    there = [i for i, (loss, _) in enumerate(lazy) if loss is not None]
    if there:
        losses[there] = backend.materialize_losses([lazy[i][0] for i in there])
    shares = np.array([share for _, share in lazy])
    parts = comm.all_gather(comm.tensor(losses * shares))
    total: Array = np.sum([comm.numpy(part) for part in parts], axis=0)
    return total
