"""Quantity skew drawn from a Dirichlet distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.parallel.partition.base import (
    PARTITIONS,
    Index,
    Samples,
    apportion,
    count_samples,
    split_by_sizes,
)
from dualml.parallel.partition.dirichlet import DirichletPartition, draw_proportions


@PARTITIONS.register("dirichlet_sizes", 100)
@dataclass(frozen=True, kw_only=True)
class DirichletSizes(DirichletPartition):
    """Cuts a random permutation into parts whose shares are one draw from Dir(α, …, α).

    Every rank's label distribution is like the dataset's; only the sizes differ.

    Source: Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE,
    §4.3 (quantity skew).
    """

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Split a random permutation into parts whose sizes are drawn from the Dirichlet
        distribution, redrawn until every rank has ``least`` samples, at most ``tries`` times (then
        `UserError`)."""
        n = count_samples(samples)

        def sizes() -> list[int]:
            return apportion(draw_proportions(draw, self.alpha, ranks), n)

        return split_by_sizes(draw.permutation(n), self.draw_feasible_sizes(n, ranks, sizes))
