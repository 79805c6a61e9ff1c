"""Partition into consecutive blocks of the dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import PARTITIONS, Index, Partition, Samples, count_samples


@PARTITIONS.register("contiguous", 10)
@dataclass(frozen=True, kw_only=True)
class Contiguous(Partition):
    """Rank r gets the r-th of n nearly equal blocks, in the order of the dataset's files.

    It is as random as the files are: from a dataset sorted by label each rank sees few labels.

    Source: block distribution, e.g. Foster 1995, "Designing and Building Parallel Programs", §2.2.
    """

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Return the positions 0 … N − 1 in ``ranks`` consecutive, nearly equal blocks."""
        return np.array_split(np.arange(count_samples(samples)), ranks)
