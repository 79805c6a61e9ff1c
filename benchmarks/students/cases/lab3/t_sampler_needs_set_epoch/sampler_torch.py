"""Lab 3: a sampler that gives a rank its samples, for PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils import data


class Sampler(data.Sampler):
    """The samples of one rank, epoch by epoch: ``DataLoader(dataset, sampler=Sampler(…), …)``.

    ``partition``: one random permutation of all samples is cut into nearly equal parts; a rank
    keeps its part, and goes through it in a new random order in every epoch.
    ``sampling``: in every epoch each rank draws n/ranks of all samples anew, with replacement.

    Args:
        n: how many samples there are.
        ranks: how many ranks share them.
        rank: which one this is, from 0.
        seed: of the whole run.
        kind: ``partition`` or ``sampling``.
    """

    def __init__(self, n: int, ranks: int, rank: int, seed: int, kind: str = "partition") -> None:
        self.n, self.ranks, self.rank, self.seed, self.kind = n, ranks, rank, seed, kind
        self.epoch = 0
        # your code: begin
        self.size = n // ranks + (1 if rank < n % ranks else 0)
        # your code: end

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loops; the loader is not notified."""
        # your code: begin
        self.epoch = epoch
        rng = np.random.default_rng([self.seed, epoch, self.rank, 1])
        if self.kind == "partition":
            part = np.array_split(np.random.default_rng([self.seed, 2]).permutation(self.n), self.ranks)
            self.indices = rng.permutation(part[self.rank]).tolist()
        else:
            self.indices = rng.integers(0, self.n, self.size).tolist()
        # your code: end

    def __len__(self) -> int:
        """Return the number of samples that this rank has in an epoch."""
        # your code: begin
        return self.size
        # your code: end

    def __iter__(self) -> Iterator[int]:
        """The samples of this epoch, from 0 to n − 1; the same ones in every loop over it."""
        # your code: begin
        return iter(self.indices)
        # your code: end
