"""A partition as a `Sampler`, for your own DataLoader.

    import torch.distributed as dist
    from torch.utils.data import DataLoader

    from dualml.partition import DirichletLabels
    from dualml_torch.partition import PartitionSampler

    ranks, rank = dist.get_world_size(), dist.get_rank()
    sampler = PartitionSampler(DirichletLabels(alpha=0.3), labels, ranks, rank, seed=0)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # without it, every epoch is the first one
        for x, y in loader:
            ...

Every rank deals for itself: the lists depend on the arguments alone, so that no messages are
needed. They are those of `dualml_ms.partition` and of ``dualml partition``.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import Sampler

from dualml.errors import UserError
from dualml.partition import Index, Partition, Samples


class PartitionSampler(Sampler[int]):
    """Yields the positions that a rule deals to one rank, epoch by epoch.

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
