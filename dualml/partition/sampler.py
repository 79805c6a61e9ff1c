"""One rank's lists, epoch by epoch: what the samplers of all frameworks share."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.errors import UserError
from dualml.partition.base import Index, Partition, Samples


class RankOrder:
    """Yields the positions that a rule deals to one rank in an epoch, the first one until
    `set_epoch` chooses another.

    Args:
        rule: the partition.
        samples: how many samples the dataset has, or their labels, integers (N,); some rules need
            labels.
        ranks: how many ranks share them.
        rank: which one this is, 0 ≤ rank < ranks.
        seed: the same on all ranks.

    Raises:
        UserError: there is no such rank. What else cannot be meant, the first use of an epoch says.
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
        """Positions of this rank in the epoch, int64; dealt when first asked for, then kept.

        Raises:
            UserError: see `Partition.deal`.
        """
        if self._dealt is None or self._dealt[0] != self.epoch:
            parts = self.rule.deal(self.samples, self.ranks, self.seed, self.epoch)
            self._dealt = self.epoch, parts[self.rank]
        return self._dealt[1]

    def __iter__(self) -> Iterator[int]:
        yield from self.order().tolist()

    def __len__(self) -> int:
        return len(self.order())
