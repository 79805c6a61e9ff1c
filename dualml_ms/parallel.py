"""A training in MindSpore whose batches ranks can share."""

from __future__ import annotations

from typing import ClassVar

from dualml.backend import Divisible, Layout, NativeParallel, Overlapping, Replicable
from dualml.communicator import Communicator
from dualml_ms.aggregation import MindSporePieces
from dualml_ms.native import MindSporeNative
from dualml_ms.training import MindSporeTraining


class MindSporeParallel(MindSporeTraining, Divisible, NativeParallel):
    """See `dualml.backend.ability`."""

    lacks: ClassVar = {
        # Measured: of a graph with an all-reduce for each gradient, a rank whose peer came late
        # computed the earlier layers only when it had come, whatever the settings of the runtime.
        Overlapping: "MindSpore runs the operators of a graph one by one on a CPU: an all-reduce "
        "in the backward pass holds up what comes after it",
        Replicable: "MindSpore has no training by replicas in one process",
    }

    def pieces(self, layout: Layout) -> MindSporePieces:
        return MindSporePieces(self, layout)

    def native(self, comm: Communicator) -> MindSporeNative:
        return MindSporeNative(self, comm)
