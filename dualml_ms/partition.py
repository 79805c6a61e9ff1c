"""A partition as a `Sampler`, for your own GeneratorDataset or any other mappable dataset.

    import mindspore.dataset as ds
    from mindspore.communication import get_group_size, get_rank

    from dualml.partition import DirichletLabels
    from dualml_ms.partition import PartitionSampler

    rule, ranks, rank = DirichletLabels(alpha=0.3), get_group_size(), get_rank()
    sampler = PartitionSampler(rule, labels, ranks, rank, seed=0)
    data = ds.GeneratorDataset(source, ["image", "label"], sampler=sampler).batch(64)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # before the iterator of the epoch is made
        for x, y in data.create_tuple_iterator(num_epochs=1):
            ...

Every rank deals for itself: the lists depend on the arguments alone, so that no messages are
needed. They are those of `dualml_torch.partition` and of ``dualml partition``.

One iterator of several epochs, as ``Model.train`` makes it, goes on with the next epoch by itself.
"""

from __future__ import annotations

import copy
from typing import Any

import mindspore.dataset as ds

from dualml.errors import UserError
from dualml.partition import Partition, Samples
from dualml.partition.sampler import RankOrder


class PartitionSampler(RankOrder, ds.Sampler):
    """See `dualml.partition.sampler.RankOrder` for its arguments and methods.

    An epoch that is set takes effect when the next iterator is made.
    """

    epoch: int | None = None

    def __init__(
        self, rule: Partition, samples: Samples, ranks: int, rank: int, seed: int = 0
    ) -> None:
        ds.Sampler.__init__(self, num_samples=1)  # a stand-in, until there is an epoch
        RankOrder.__init__(self, rule, samples, ranks, rank, seed)

    @property
    def num_samples(self) -> int:
        """Of the epoch; what the base class keeps would be that of the first one.

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
        """The base class sets it; it follows from the epoch."""

    def reset(self) -> None:
        """MindSpore calls this between the epochs of one iterator."""
        self.epoch += 1

    def __deepcopy__(self, memo: dict[int, Any]) -> PartitionSampler:
        """Every iterator copies its sampler: labels and lists are shared, the epoch is its own."""
        self.order()
        copied = copy.copy(self)
        copied.batch_sizes = []
        copied.child_sampler = copy.deepcopy(self.child_sampler, memo)
        return copied
