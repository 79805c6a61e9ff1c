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
        sigma = np.random.default_rng([seed, 99]).permutation(n)
        self.part = sigma[rank::ranks]
        # your code: end

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loops; the loader is not notified."""
        # your code: begin
        self.epoch = epoch
        # your code: end

    def __len__(self) -> int:
        """Return the number of samples that this rank has in an epoch."""
        # your code: begin
        return len(self.part)
        # your code: end

    def __iter__(self) -> Iterator[int]:
        """The samples of this epoch, from 0 to n − 1; the same ones in every loop over it."""
        # your code: begin
        rng = np.random.default_rng((self.seed, self.rank, self.epoch, 7))
        if self.kind == "partition":
            order = rng.permutation(len(self.part))
            for i in order:
                yield int(self.part[i])
        else:
            for _ in range(len(self)):
                yield int(rng.integers(self.n))
        # your code: end
