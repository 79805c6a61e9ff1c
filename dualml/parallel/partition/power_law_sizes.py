"""Partition into parts whose sizes follow a power law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import (
    PARTITIONS,
    Index,
    Partition,
    Samples,
    apportion,
    count_samples,
    split_by_sizes,
)


@PARTITIONS.register("power_law_sizes", 110)
@dataclass(frozen=True, kw_only=True)
class PowerLawSizes(Partition):
    """Cuts a random permutation into parts of sizes ∝ (r + 1)^-exponent: rank 0 has the most.

    Every rank's label distribution is like the dataset's. With many ranks and a large exponent the
    last ranks have no samples.

    Args:
        exponent: exponent ≥ 0; 0 gives equal sizes, 1 Zipf's law.

    Source: Li et al. 2020, "Federated Optimization in Heterogeneous Networks", MLSys, §5.1 (samples
    per device by a power law).
    """

    exponent: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.exponent >= 0 and math.isfinite(self.exponent)
        self.require(right, "exponent must be 0 or more", "exponent")

    def sizes(self, n: int, ranks: int) -> list[int]:
        """Return sizes proportional to (r + 1)^-exponent for rank r, rounded so that they add up to
        ``n``; some may be 0."""
        weights = np.arange(1, ranks + 1, dtype=np.float64) ** -self.exponent
        return apportion(weights / weights.sum(), n)

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Split a random permutation of all positions into consecutive parts of the sizes that
        `sizes` returns."""
        n = count_samples(samples)
        return split_by_sizes(draw.permutation(n), self.sizes(n, ranks))
