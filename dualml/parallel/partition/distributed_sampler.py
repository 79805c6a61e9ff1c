"""The partition of PyTorch's DistributedSampler, index for index."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualml.parallel.partition.base import (
    PARTITIONS,
    Guarantees,
    Index,
    Partition,
    Samples,
    count_samples,
)


@PARTITIONS.register("distributed_sampler", 50)
@dataclass(frozen=True, kw_only=True)
class DistributedSampler(Partition):
    """Assigns a permutation of all samples, drawn from seed + epoch, to the ranks in turn.

    All ranks have equally many samples: the beginning of the permutation is repeated to fill up
    (those samples are then seen twice in an epoch), or with ``drop_last`` the last ones are left
    out. With ``shuffle`` the permutation is the one that ``torch.randperm`` draws on a CPU, so that
    the lists are those of ``torch.utils.data.DistributedSampler(…, seed=seed)`` after
    ``set_epoch(epoch)``.

    MindSpore: without ``shuffle`` the lists are those of ``mindspore.dataset.DistributedSampler(
    ranks, rank, shuffle=False)``, which fills up in the same way and has no ``drop_last``. With
    ``shuffle`` they are not: its permutation is another one, from ``mindspore.dataset.config``'s
    seed when the sampler is made instead of an argument; the epochs of one iterator differ, but
    every new iterator begins with the first one's order again.

    Args:
        drop_last: whether samples are left out instead of repeated.

    Source: torch/utils/data/distributed.py.
    """

    repartitions_each_epoch: ClassVar[bool] = True

    drop_last: bool = False

    def ordered_indices(self, samples: Samples, ranks: int, seed: int, epoch: int) -> list[Index]:
        """Return every ``ranks``-th entry of the epoch's permutation for each rank, with all lists
        of equal length; without ``shuffle`` in the order of the dataset."""
        n = count_samples(samples)
        order = torch_permutation(n, seed + epoch) if self.shuffle else np.arange(n)
        each = self.size(n, ranks)
        order = np.resize(order, each * ranks)  # repeats from the beginning, or cuts
        return [order[rank::ranks].astype(np.int64) for rank in range(ranks)]

    def size(self, n: int, ranks: int) -> int:
        """Return the number of samples of each rank: n / ``ranks`` rounded up, or down with
        ``drop_last``."""
        return n // ranks if self.drop_last else math.ceil(n / ranks)

    def guarantees(self, samples: Samples, ranks: int) -> Guarantees:
        """Return equal sizes; disjoint only with ``drop_last`` and covering only without it, or
        both if ``ranks`` divides the number of samples."""
        n = count_samples(samples)
        divides = n % ranks == 0
        size = self.size(n, ranks)
        return Guarantees(self.drop_last or divides, not self.drop_last or divides, [size] * ranks)


def torch_permutation(n: int, seed: int) -> Index:
    """Return ``torch.randperm(n, generator=torch.Generator().manual_seed(seed))`` on a CPU, n <
    2³²/20.

    A Mersenne twister seeded by Knuth's recurrence with the lower 32 bits (NumPy's legacy seeding
    is the same), and a Fisher-Yates shuffle from the front: element i is exchanged with element i +
    (draw mod (n - i)).

    Source: Matsumoto & Nishimura 1998, "Mersenne Twister"; aten/src/ATen/native/TensorFactories.cpp
    (randperm_cpu).
    """
    if n < 2:
        return np.arange(n, dtype=np.int64)
    twister = np.random.RandomState(seed & 0xFFFFFFFF)
    raw = twister.randint(0, 2**32, size=n - 1, dtype=np.uint32).astype(np.int64)
    targets = (raw % np.arange(n, 1, -1) + np.arange(n - 1)).tolist()
    order = array("q", range(n))  # not a NumPy array, whose single elements are slow to exchange
    for i, j in enumerate(targets):
        order[i], order[j] = order[j], order[i]
    return np.array(order, dtype=np.int64)
