"""A random partition with equal label distributions but noisier images on higher ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.common.seeds import make_generator
from dualml.parallel.partition.base import PARTITIONS, Index
from dualml.parallel.partition.random_partition import RandomPartition


@PARTITIONS.register("feature_noise", 120)
@dataclass(frozen=True, kw_only=True)
class FeatureNoise(RandomPartition):
    """Random partition with Gaussian noise of deviation σ (r + 1) / n on the samples of rank r.

    Every sample belongs to one rank, so that its noise is the same on every rank and backend that
    reads it.

    Args:
        sigma: σ ≥ 0, in units of the normalised features (deviation about 1).

    Source: Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE,
    §4.2 (noise-based feature imbalance; there σ is the variance).
    """

    changes_features: ClassVar[bool] = True

    sigma: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        right = self.sigma >= 0 and math.isfinite(self.sigma)
        self.require(right, "sigma must be 0 or more", "sigma")

    def levels(self, ranks: int) -> list[float]:
        """Return the standard deviation of each rank's noise, sigma · (r + 1) / ``ranks`` for rank
        r."""
        return [self.sigma * (rank + 1) / ranks for rank in range(ranks)]

    def features(
        self, x: NDArray[np.float32], parts: Sequence[Index], seed: int
    ) -> NDArray[np.float32]:
        """Return a copy of ``x``, (N, …), with normal noise added to each sample at the level of
        the rank whose list in ``parts`` has it, drawn from ``seed``."""
        noisy = np.array(x)
        for rank, (part, level) in enumerate(zip(parts, self.levels(len(parts)), strict=True)):
            own = np.sort(part)  # the noise of a sample does not depend on the order of an epoch
            draw = make_generator(seed, "feature noise", rank)
            noise: NDArray[Any] = draw.standard_normal((len(own), *x.shape[1:]), np.float32)
            noisy[own] += np.float32(level) * noise
        return noisy
