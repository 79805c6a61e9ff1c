"""A MindSpore training whose batches can be split over ranks."""

from __future__ import annotations

from typing import ClassVar

from dualml.backend import Divisible, Layout, NativeParallel, Overlapping, Replicable
from dualml.communicator import Communicator
from dualml_ms.aggregation import MindSporePieces
from dualml_ms.native import MindSporeNative
from dualml_ms.training import MindSporeTraining


class MindSporeParallel(MindSporeTraining, Divisible, NativeParallel):
    """A training with MindSpore's data parallel capabilities, see `dualml.backend.capability`."""

    lacks: ClassVar = {
        # Measured: in a graph with an all-reduce for each gradient, a rank with a late peer
        # computed the earlier layers only after the peer's arrival, whatever the settings.
        Overlapping: "MindSpore runs the operators of a graph one by one on a CPU: an all-reduce "
        "in the backward pass holds up what comes after it",
        Replicable: "MindSpore has no training by replicas in one process",
    }

    def pieces(self, layout: Layout) -> MindSporePieces:
        return MindSporePieces(self, layout)

    def native(self, comm: Communicator) -> MindSporeNative:
        return MindSporeNative(self, comm)
