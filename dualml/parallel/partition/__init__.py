"""Partitioning rules that assign samples to ranks, one file each and discovered automatically, and
statistics of a partition."""

from __future__ import annotations

from dualml.common.former_members import former_names
from dualml.common.json_types import JsonMapping
from dualml.parallel.partition.base import PARTITIONS as PARTITIONS
from dualml.parallel.partition.base import Index as Index
from dualml.parallel.partition.base import Partition as Partition
from dualml.parallel.partition.base import Samples as Samples
from dualml.parallel.partition.bootstrap import Bootstrap as Bootstrap
from dualml.parallel.partition.contiguous import Contiguous as Contiguous
from dualml.parallel.partition.dirichlet_labels import DirichletLabels as DirichletLabels
from dualml.parallel.partition.dirichlet_sizes import DirichletSizes as DirichletSizes
from dualml.parallel.partition.distributed_sampler import DistributedSampler as DistributedSampler
from dualml.parallel.partition.feature_noise import FeatureNoise as FeatureNoise
from dualml.parallel.partition.fractions import Fractions as Fractions
from dualml.parallel.partition.from_file import FromFile as FromFile
from dualml.parallel.partition.label_classes import LabelClasses as LabelClasses
from dualml.parallel.partition.label_shards import LabelShards as LabelShards
from dualml.parallel.partition.power_law_sizes import PowerLawSizes as PowerLawSizes
from dualml.parallel.partition.random_partition import RandomPartition as RandomPartition
from dualml.parallel.partition.random_sampling import RandomSampling as RandomSampling
from dualml.parallel.partition.round_robin import RoundRobin as RoundRobin
from dualml.parallel.partition.stats import PartitionStats as PartitionStats
from dualml.parallel.partition.stats import fingerprint as fingerprint
from dualml.parallel.partition.stats import partition_stats as partition_stats
from dualml.parallel.partition.stats import verify_partition as verify_partition


def partition_from(spec: JsonMapping) -> Partition:
    """Return the rule that ``spec`` describes: ``{"name": "dirichlet_labels", "alpha": 0.1}`` →
    ``DirichletLabels(alpha=0.1)``.

    Raises:
        UserError: an unknown rule or setting, a missing setting, or an invalid value.
    """
    return PARTITIONS.from_spec(spec)


__getattr__ = former_names(
    __name__,
    {"Statement": "PartitionStats", "prove": "verify_partition", "state": "partition_stats"},
)
