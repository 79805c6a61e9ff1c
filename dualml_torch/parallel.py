"""A PyTorch training whose batches can be split over ranks or GPUs."""

from __future__ import annotations

import torch

from dualml.backend import Divisible, Layout, NativeParallel, Overlapping, Replicable
from dualml.communicator import Communicator
from dualml_torch.aggregation import TorchPieces
from dualml_torch.native import TorchNative, replicas
from dualml_torch.overlap import TorchOverlap
from dualml_torch.training import TorchTraining


class TorchParallel(TorchTraining, Divisible, Overlapping, NativeParallel, Replicable):
    """A training with PyTorch's data parallel capabilities, see `dualml.backend.capability`."""

    def flat(self) -> None:
        """Store every tensor in contiguous format, as buckets require."""
        self.network.to(memory_format=torch.contiguous_format)
        self.choice = None
        if self.recorded is not None:
            self.recorded.forget()

    def pieces(self, layout: Layout) -> TorchPieces:
        self.flat()
        return TorchPieces(self, layout)

    def overlapping(self, layout: Layout, comm: Communicator) -> TorchOverlap:
        self.flat()
        self.recorded = None  # no hook would be called
        return TorchOverlap(self, layout, comm)

    def native(self, comm: Communicator) -> TorchNative:
        self.flat()
        return TorchNative(self, comm)

    def replicas(self) -> None:
        self.flat()
        self.network, self.recorded = replicas(self.network, self.device), None
