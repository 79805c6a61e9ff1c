"""Quantity skew drawn from a Dirichlet distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualml.partition.base import PARTITIONS, Index, Samples, count, cut, rounded
from dualml.partition.drawn import Drawn, proportions


@PARTITIONS.register("dirichlet_sizes", 100)
@dataclass(frozen=True, kw_only=True)
class DirichletSizes(Drawn):
    """Cuts a random permutation into parts whose shares are one draw from Dir(α, …, α).

    Every rank's label distribution is like the dataset's; only the sizes differ.

    Source: Li et al. 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study", ICDE,
    §4.3 (quantity skew).
    """

    def own(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        n = count(samples)

        def sizes() -> list[int]:
            return rounded(proportions(draw, self.alpha, ranks), n)

        return cut(draw.permutation(n), self.feasible(n, ranks, sizes))
