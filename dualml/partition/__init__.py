"""Ways to deal samples to ranks, one file each, found by itself; what a deal turns out to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from dualml.errors import UserError, nearest
from dualml.partition.base import PARTITIONS as PARTITIONS
from dualml.partition.base import Index as Index
from dualml.partition.base import Partition as Partition
from dualml.partition.base import Samples as Samples
from dualml.partition.bootstrap import Bootstrap as Bootstrap
from dualml.partition.contiguous import Contiguous as Contiguous
from dualml.partition.dirichlet_labels import DirichletLabels as DirichletLabels
from dualml.partition.dirichlet_sizes import DirichletSizes as DirichletSizes
from dualml.partition.distributed_sampler import DistributedSampler as DistributedSampler
from dualml.partition.feature_noise import FeatureNoise as FeatureNoise
from dualml.partition.fractions import Fractions as Fractions
from dualml.partition.from_file import FromFile as FromFile
from dualml.partition.label_classes import LabelClasses as LabelClasses
from dualml.partition.label_shards import LabelShards as LabelShards
from dualml.partition.power_law_sizes import PowerLawSizes as PowerLawSizes
from dualml.partition.random_partition import RandomPartition as RandomPartition
from dualml.partition.random_sampling import RandomSampling as RandomSampling
from dualml.partition.round_robin import RoundRobin as RoundRobin
from dualml.partition.statement import Statement as Statement
from dualml.partition.statement import fingerprint as fingerprint
from dualml.partition.statement import prove as prove
from dualml.partition.statement import state as state


def partition_from(spec: Mapping[str, Any]) -> Partition:
    """``{"name": "dirichlet_labels", "alpha": 0.1}`` → ``DirichletLabels(alpha=0.1)``.

    Raises:
        UserError: an unknown rule or setting, one that is missing, or a value it cannot have.
    """
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in spec.items() if k != "name"}
    name = spec.get("name")
    if name is None:
        raise UserError(f"a partition needs a name{nearest('None', PARTITIONS)}")
    rule: Any = PARTITIONS.find(name)
    known = {f.name: f for f in fields(rule)}
    for key in values:
        if key not in known:
            raise UserError(f"partition {name!r} has no setting {key!r}{nearest(key, known)}")
    for key, field in known.items():
        if field.default is MISSING and key not in values:
            raise UserError(f"partition {name!r} needs {key}")
    chosen: Partition = rule(**values)
    return chosen
