"""Label skew drawn from a Dirichlet distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.parallel.partition.base import PARTITIONS, Index, Samples, apportion, split_by_sizes
from dualml.parallel.partition.dirichlet import DirichletPartition, draw_proportions


@PARTITIONS.register("dirichlet_labels", 90)
@dataclass(frozen=True, kw_only=True)
class DirichletLabels(DirichletPartition):
    """Splits the samples of each label over the ranks by a draw from Dir(α, …, α), label by label.

    α = 100 is nearly uniform; with α = 0.1 most of a label is with one or two ranks. The sizes of
    the parts differ, too.

    Source: Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks",
    ICML, §4; Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification", arXiv:1909.06335.
    """

    needs_labels: ClassVar[bool] = True

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Divide the samples of each label at random by shares drawn from the Dirichlet
        distribution, all redrawn until every rank has ``least`` samples, at most ``tries`` times
        (then `UserError`); return each rank's positions in ascending order."""
        labels = np.asarray(samples)
        _, counts = np.unique(labels, return_counts=True)
        shares: list[list[int]] = []  # label → size of each rank's share

        def sizes() -> list[int]:
            shares[:] = [
                apportion(draw_proportions(draw, self.alpha, ranks), int(c)) for c in counts
            ]
            return [sum(column) for column in zip(*shares, strict=True)]

        self.draw_feasible_sizes(len(labels), ranks, sizes)
        order = draw.permutation(len(labels))
        by_label = order[np.argsort(labels[order], kind="stable")]
        parts: list[list[Index]] = [[] for _ in range(ranks)]
        for alike, share in zip(split_by_sizes(by_label, counts.tolist()), shares, strict=True):
            for rank, piece in enumerate(split_by_sizes(alike, share)):
                parts[rank].append(piece)
        return [np.sort(np.concatenate(p)) for p in parts]
