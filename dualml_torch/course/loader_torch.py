"""A resumable loader of one rank's batches, shuffled by seed and epoch, in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Loader:
    """The batches of one rank, epoch by epoch: ``for x, y in Loader(…)``.

    In every epoch all samples are shuffled anew, by seed and epoch, and shared by the ranks.

    Args:
        x, y: all samples, arrays (n, …) and (n,); they are not changed.
        batch_size: samples of a batch of this rank.
        rank, ranks: which rank this is, from 0, and how many there are.
        seed: of the whole run.
        drop_last: whether what does not fill a batch on every rank is left out; otherwise some
            samples come twice, so that all ranks have equally many, and a last batch may be
            smaller.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        batch_size: int,
        rank: int,
        ranks: int,
        seed: int,
        drop_last: bool = False,
    ) -> None:
        self.x, self.y, self.batch_size = x, y, batch_size
        self.rank, self.ranks, self.seed, self.drop_last = rank, ranks, seed, drop_last
        self.epoch = 0
        # solution: begin pass
        self.done = self.start = 0  # batches that were given out, that the next loop leaves out
        # solution: end

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loops; the position in an epoch that is resumed stays."""
        # solution: begin
        if epoch != self.epoch:
            self.done = self.start = 0
        self.epoch = epoch
        # solution: end

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank."""
        # solution: begin
        if self.drop_last:
            return len(self.x) // (self.ranks * self.batch_size)
        return -(-len(self.x) // (self.ranks * self.batch_size))
        # solution: end

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Return the batches (x, y) of this epoch, as tensors; after `load_state_dict` the rest of
        them, once."""
        # solution: begin
        n, size = len(self.x), self.batch_size
        order = np.random.default_rng([self.seed, self.epoch]).permutation(n)
        if self.drop_last:
            order = order[: n // (self.ranks * size) * self.ranks * size]
        else:
            order = np.concatenate([order, order[: -n % self.ranks]])
        own = order[self.rank :: self.ranks]
        first, self.start = self.start, 0
        for b in range(first, len(self)):
            self.done = b + 1
            part = own[b * size : (b + 1) * size]
            yield torch.from_numpy(self.x[part]), torch.from_numpy(self.y[part])
        # solution: end

    def state_dict(self) -> dict[str, Any]:
        """Return the position in this epoch as a few plain numbers by name."""
        # solution: begin
        return {"epoch": self.epoch, "done": self.done}
        # solution: end

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the next loop begins with the next batch."""
        # solution: begin
        self.epoch, self.done = state["epoch"], state["done"]
        self.start = self.done
        # solution: end
