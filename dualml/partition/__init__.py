"""Ways to deal samples to ranks, one file each, found by itself; what a deal turns out to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from dualml.errors import UserError, nearest
from dualml.partition.base import PARTITIONS, Index, Partition, Promise, Samples
from dualml.partition.bootstrap import Bootstrap
from dualml.partition.contiguous import Contiguous
from dualml.partition.dirichlet_labels import DirichletLabels
from dualml.partition.dirichlet_sizes import DirichletSizes
from dualml.partition.distributed_sampler import DistributedSampler
from dualml.partition.feature_noise import FeatureNoise
from dualml.partition.fractions import Fractions
from dualml.partition.from_file import FromFile
from dualml.partition.label_classes import LabelClasses
from dualml.partition.label_shards import LabelShards
from dualml.partition.power_law_sizes import PowerLawSizes
from dualml.partition.random_partition import RandomPartition
from dualml.partition.random_sampling import RandomSampling
from dualml.partition.round_robin import RoundRobin
from dualml.partition.statement import Statement, fingerprint, prove, state

__all__ = [
    "PARTITIONS",
    "Bootstrap",
    "Contiguous",
    "DirichletLabels",
    "DirichletSizes",
    "DistributedSampler",
    "FeatureNoise",
    "Fractions",
    "FromFile",
    "Index",
    "LabelClasses",
    "LabelShards",
    "Partition",
    "PowerLawSizes",
    "Promise",
    "RandomPartition",
    "RandomSampling",
    "RoundRobin",
    "Samples",
    "Statement",
    "fingerprint",
    "partition_from",
    "prove",
    "state",
]


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
