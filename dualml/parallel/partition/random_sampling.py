"""Sampling rule in which every rank draws independently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.former_members import keep_former_members
from dualml.parallel.partition.base import (
    PARTITIONS,
    Guarantees,
    Index,
    Partition,
    Samples,
    count_samples,
)


@keep_former_members
@PARTITIONS.register("random_sampling", 40)
@dataclass(frozen=True, kw_only=True)
class RandomSampling(Partition):
    """Each rank draws its N/n samples of an epoch from all N, without asking the others.

    No rank owns samples, no data has to be moved, and every draw is unbiased; but an epoch sees
    some samples several times and others not at all (`expected_missed_share`).

    Args:
        replacement: whether a rank may draw a sample twice; otherwise only different ranks may have
            the same sample.

    Source: sampling with and without replacement by independent workers, e.g. Meng et al. 2019,
    "Convergence analysis of distributed stochastic gradient descent with shuffling".
    """

    repartitions_each_epoch: ClassVar[bool] = True

    replacement: bool = True

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Draw each rank's positions from all samples with a generator of its own, with or without
        ``replacement``, in random order."""
        n = count_samples(samples)
        parts = []
        for rank_draw, size in zip(draw.spawn(ranks), part_lengths(n, ranks), strict=True):
            if self.replacement:
                parts.append(rank_draw.integers(n, size=size, dtype=np.int64))
            else:
                parts.append(rank_draw.permutation(n)[:size])
        return parts

    def order(self, parts: list[Index], seed: int, epoch: int) -> list[Index]:
        """Return the samples as drawn, because a draw is in random order already; sorted without
        ``shuffle``."""
        return parts if self.shuffle else [np.sort(part) for part in parts]

    def expected_missed_share(self, n: int, ranks: int) -> float:
        """Return the expected share of n samples that an epoch does not see: (1 - 1/n)^n with
        replacement, Π (1 - n_r / n) over the ranks' n_r samples without."""
        if self.replacement:
            return float((1 - 1 / n) ** n)
        return float(np.prod([1 - size / n for size in part_lengths(n, ranks)]))

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return the sizes; disjoint and covering only for a single rank without replacement, else
        unknown."""
        alone = ranks == 1 and not self.replacement
        return Guarantees(alone or None, alone or None, part_lengths(count_samples(samples), ranks))
