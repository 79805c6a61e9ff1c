"""Partition by shards of the dataset sorted by label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.errors import UserError
from dualml.parallel.partition.base import PARTITIONS, Index, Partition, Samples, count_samples


@PARTITIONS.register("label_shards", 70)
@dataclass(frozen=True, kw_only=True)
class LabelShards(Partition):
    """Sorts by label, cuts into n × ``shards`` nearly equal shards, gives ``shards`` to each rank.

    With two shards most ranks see two labels: the hardest setting of the FedAvg paper.

    Args:
        shards: number of shards per rank.

    Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS, §3 ("pathological non-IID").
    """

    needs_labels: ClassVar[bool] = True

    shards: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.shards >= 1, "a rank needs at least one shard", "shards")

    def assign(self, samples: Samples, ranks: int, draw: np.random.Generator) -> list[Index]:
        """Sort the positions by label, cut them into nearly equal shards, and assign ``shards`` of
        them to each rank at random; a rank's shards follow in the order of labels.

        Raises:
            UserError: fewer samples than shards.
        """
        n, pieces = count_samples(samples), ranks * self.shards
        if pieces > n:
            raise UserError(
                f"{self.name}: {ranks} ranks with {self.shards} shards each need "
                f"{pieces} samples; there are {n}"
            )
        shards = np.array_split(np.argsort(np.asarray(samples), kind="stable"), pieces)
        dealt = draw.permutation(pieces).reshape(ranks, self.shards)
        return [np.concatenate([shards[i] for i in np.sort(row)]) for row in dealt]

    def sizes(self, n: int, ranks: int) -> list[int] | None:
        """Return the number of samples of each rank, all equal, if all shards are equally large,
        else None."""
        return part_lengths(n, ranks) if n % (ranks * self.shards) == 0 else None
