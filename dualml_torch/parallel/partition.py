"""A partition as a `Sampler`, for your own DataLoader.

    import torch.distributed as dist
    from torch.utils.data import DataLoader

    from dualml.parallel.partition import DirichletLabels
    from dualml_torch.parallel.partition import PartitionSampler

    ranks, rank = dist.get_world_size(), dist.get_rank()
    sampler = PartitionSampler(DirichletLabels(alpha=0.3), labels, ranks, rank, seed=0)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # without it, every epoch is the first one
        for x, y in loader:
            ...

Every rank computes its own part: it depends on the arguments alone, so no communication is needed.
The parts equal those of `dualml_ms.parallel.partition` and of ``dualml partition``.
"""

from __future__ import annotations

from torch.utils.data import Sampler

from dualml.parallel.partition.sampler import RankOrder


class PartitionSampler(RankOrder, Sampler[int]):
    """A partition as a PyTorch sampler; see `dualml.parallel.partition.sampler.RankOrder` for
    arguments and methods."""
