"""Partition into parts of chosen sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualml.common.errors import UserError
from dualml.parallel.partition.base import (
    PARTITIONS,
    Index,
    Partition,
    Samples,
    apportion,
    count_samples,
    split_by_sizes,
)


@PARTITIONS.register("fractions", 60)
@dataclass(frozen=True, kw_only=True)
class Fractions(Partition):
    """Cuts a random permutation into parts of given shares: 0.7, 0.2 and 0.1 of all samples.

    Sizes are rounded by largest remainder, so that every sample is assigned.

    Args:
        fractions: share of each rank, from 0 to 1, in the order of ranks; they add up to 1.

    Source: the partitioner of PyTorch's tutorial "Writing Distributed Applications", whose sizes
    are rounded down instead.
    """

    fractions: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        listed = isinstance(self.fractions, list | tuple) and len(self.fractions) > 0
        numbers = listed and all(
            isinstance(f, int | float) and not isinstance(f, bool) for f in self.fractions
        )
        self.require(numbers, "give a share for each rank", "fractions")
        self.require(
            all(0 <= f <= 1 for f in self.fractions), "a share is from 0 to 1", "fractions"
        )
        total = math.fsum(self.fractions)
        self.require(abs(total - 1) < 1e-6, f"shares add up to {total:g} instead of 1", "fractions")

    def sizes(self, n: int, ranks: int) -> list[int]:
        """Return the number of samples of each rank: its fraction of ``n``, rounded by largest
        remainder so that they add up to ``n``.

        Raises:
            UserError: the number of shares is not the number of ranks.
        """
        if len(self.fractions) != ranks:
            raise UserError(
                f"{self.name}: {len(self.fractions)} shares for {ranks} ranks; give one for each"
            )
        # Of many samples, the millionth by which they may miss 1 is several.
        return apportion(np.array(self.fractions) / math.fsum(self.fractions), n)

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Split a random permutation of all positions into parts of the given shares; raise
        `UserError` if there is not one share for each rank."""
        n = count_samples(samples)
        return split_by_sizes(draw.permutation(n), self.sizes(n, ranks))
