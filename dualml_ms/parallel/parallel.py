"""A MindSpore training whose batches can be split over ranks."""

from __future__ import annotations

from typing import ClassVar

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    Layout,
)
from dualml_ms.algorithms.training import MindSporeTraining
from dualml_ms.parallel.aggregation import MindSporeGradientBuckets
from dualml_ms.parallel.data_parallel import MindSporeDataParallel


class MindSporeParallel(MindSporeTraining, GradientAccess, FrameworkDataParallel):
    """A training with MindSpore's data parallel capabilities, see `dualml.backend.capability`."""

    missing_reasons: ClassVar = {
        # Measured: in a graph with an all-reduce for each gradient, a rank with a late peer
        # computed the earlier layers only after the peer's arrival, whatever the settings.
        CommOverlap: "MindSpore runs the operators of a graph one by one on a CPU: an all-reduce "
        "in the backward pass holds up what comes after it",
        DeviceReplication: "MindSpore has no training by replicas in one process",
    }

    def make_buckets(self, layout: Layout) -> MindSporeGradientBuckets:
        """Make the gradient buckets of this training, one for each list of names in ``layout``."""
        return MindSporeGradientBuckets(self, layout)

    def make_framework_buckets(self, comm: Communicator) -> MindSporeDataParallel:
        """Make buckets that `nn.DistributedGradReducer` sums over the ranks of ``comm``, which all
        call it; raise `Unsupported` for a single rank."""
        return MindSporeDataParallel(self, comm)
