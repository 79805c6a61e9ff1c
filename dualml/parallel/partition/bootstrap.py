"""Partitioning rule in which every rank keeps a bootstrap sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.algorithms.communicator.parts import part_lengths
from dualml.parallel.partition.base import (
    PARTITIONS,
    Guarantees,
    Index,
    Partition,
    Samples,
    count_samples,
)


@PARTITIONS.register("bootstrap", 130)
@dataclass(frozen=True, kw_only=True)
class Bootstrap(Partition):
    """Each rank draws samples with replacement once and keeps them for all epochs.

    Unlike with `random_sampling`, a rank never sees the samples that it did not draw.

    Args:
        whole: whether each rank draws N samples (bagging); otherwise its share N/n, so that an
            epoch costs as much as with a disjoint partition.

    Source: Efron 1979, "Bootstrap Methods: Another Look at the Jackknife", Ann. Statist. 7; Breiman
    1996, "Bagging Predictors", Machine Learning 24.
    """

    whole: bool = False

    def sizes(self, n: int, ranks: int) -> list[int]:
        """Return ``n`` draws for each rank if ``whole``, otherwise nearly equal shares of ``n``."""
        return [n] * ranks if self.whole else part_lengths(n, ranks)

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Draw each rank's positions with replacement from all samples, with a generator of its
        own, in ascending order."""
        n = count_samples(samples)
        return [
            np.sort(rank_draw.integers(n, size=size, dtype=np.int64))
            for rank_draw, size in zip(draw.spawn(ranks), self.sizes(n, ranks), strict=True)
        ]

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return the sizes only: whether a draw is disjoint or covering is not known before."""
        return Guarantees(None, None, self.sizes(count_samples(samples), ranks))
