"""Partition that assigns samples to the ranks in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import PARTITIONS, Index, Partition, Samples, count_samples


@PARTITIONS.register("round_robin", 20)
@dataclass(frozen=True, kw_only=True)
class RoundRobin(Partition):
    """Gives rank r the samples r, r + n, r + 2n, …

    Source: cyclic distribution, e.g. Foster 1995, "Designing and Building Parallel Programs", §2.2.
    """

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Return the positions r, r + ``ranks``, … below N for each rank r."""
        return [
            np.arange(rank, count_samples(samples), ranks, dtype=np.int64) for rank in range(ranks)
        ]
