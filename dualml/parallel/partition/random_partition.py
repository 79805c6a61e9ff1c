"""Partition of one random permutation into nearly equal parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import PARTITIONS, Index, Partition, Samples, count_samples


@PARTITIONS.register("random_partition", 30)
@dataclass(frozen=True, kw_only=True)
class RandomPartition(Partition):
    """Cuts a random permutation of all samples into n nearly equal parts, one for each rank.

    The partition is disjoint and covering: in every epoch every sample is seen exactly once, by the
    rank that owns it. All such partitions are equally likely.

    Source: random reshuffling of a partition, e.g. Meng et al. 2019, "Convergence analysis of
    distributed stochastic gradient descent with shuffling", Neurocomputing 337 (local shuffling).
    """

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Split a random permutation of all positions into ``ranks`` nearly equal parts."""
        return np.array_split(draw.permutation(count_samples(samples)), ranks)
