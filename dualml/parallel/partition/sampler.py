"""One rank's positions epoch by epoch, which the samplers of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.errors import UserError
from dualml.parallel.partition.base import Index, Partition, Samples


class RankOrder:
    """Iterates over the positions that a rule assigns to one rank in an epoch: epoch 0 until
    `set_epoch` chooses another.

    Args:
        rule: the partition.
        samples: how many samples the dataset has, or their labels, integers (N,); some rules need
            labels.
        ranks: number of ranks that share them.
        rank: number of this rank, 0 ≤ rank < ranks.
        seed: the same on all ranks.

    Raises:
        UserError: there is no such rank. Other invalid arguments are reported when an epoch is
            first used.
    """

    def __init__(
        self, rule: Partition, samples: Samples, ranks: int, rank: int, seed: int = 0
    ) -> None:
        if not 0 <= rank < ranks:
            raise UserError(f"there is no rank {rank} of {ranks}; ranks count from 0")
        self.rule, self.samples, self.ranks, self.rank, self.seed = rule, samples, ranks, rank, seed
        self.epoch = 0
        self._dealt: tuple[int, Index] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0.

        Raises:
            UserError: a negative epoch.
        """
        if epoch < 0:
            raise UserError(f"epochs count from 0; received epoch = {epoch}")
        self.epoch = epoch

    def order(self) -> Index:
        """Return the positions of this rank in the epoch, int64; computed once per epoch.

        Raises:
            UserError: see `Partition.partition`.
        """
        if self._dealt is None or self._dealt[0] != self.epoch:
            parts = self.rule.partition(self.samples, self.ranks, self.seed, self.epoch)
            self._dealt = self.epoch, parts[self.rank]
        return self._dealt[1]

    def __iter__(self) -> Iterator[int]:
        yield from self.order().tolist()

    def __len__(self) -> int:
        return len(self.order())
