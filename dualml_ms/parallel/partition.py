"""A partition as a `Sampler`, for your own GeneratorDataset or any other mappable dataset.

    import mindspore.dataset as ds
    from mindspore.communication import get_group_size, get_rank

    from dualml.parallel.partition import DirichletLabels
    from dualml_ms.parallel.partition import PartitionSampler

    rule, ranks, rank = DirichletLabels(alpha=0.3), get_group_size(), get_rank()
    sampler = PartitionSampler(rule, labels, ranks, rank, seed=0)
    data = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler).batch(64)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # before the iterator of the epoch is made
        for x, y in data.create_tuple_iterator(num_epochs=1):
            ...

Every rank computes its own part: it depends on the arguments alone, so no communication is needed.
The parts equal those of `dualml_torch.parallel.partition` and of ``dualml partition``.

An iterator over several epochs, as in ``Model.train``, advances to the next epoch by itself.
"""

from __future__ import annotations

import copy
from typing import Any

import mindspore.dataset as ds

from dualml.common.errors import UserError
from dualml.parallel.partition import Partition, Samples
from dualml.parallel.partition.sampler import RankOrder


class PartitionSampler(RankOrder, ds.Sampler):
    """A partition as a MindSpore sampler; see `dualml.parallel.partition.sampler.RankOrder` for
    arguments and methods.

    A newly set epoch takes effect when the next iterator is made.
    """

    epoch: int | None = None

    def __init__(
        self, rule: Partition, samples: Samples, ranks: int, rank: int, seed: int = 0
    ) -> None:
        ds.Sampler.__init__(self, num_samples=1)  # a placeholder until there is an epoch
        RankOrder.__init__(self, rule, samples, ranks, rank, seed)

    @property
    def num_samples(self) -> int:
        """Number of samples of the current epoch, before it has one (while it is made) 1; the base
        class would keep that of the first epoch.

        Raises:
            UserError: the rank has none; MindSpore's pipelines cannot be empty.
        """
        if self.epoch is None:
            return 1
        if not len(self):
            raise UserError(
                f"rank {self.rank} of {self.ranks} has no sample, and a MindSpore pipeline cannot "
                "be empty; leave it out on this rank"
            )
        return len(self)

    @num_samples.setter
    def num_samples(self, value: int) -> None:
        """Ignore the base class's assignment: the number follows from the epoch."""

    def reset(self) -> None:
        """Advance to the next epoch; MindSpore calls this between the epochs of one iterator. There
        must be a current epoch (`set_epoch`)."""
        self.epoch += 1

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionSampler:
        """Copy the sampler for an iterator: labels and indices are shared, the epoch is
        separate."""
        self.order()
        copied = copy.copy(self)
        copied.batch_sizes = []
        copied.child_sampler = copy.deepcopy(self.child_sampler, memo)
        return copied
