"""A PyTorch training whose batches can be split over ranks or GPUs."""

from __future__ import annotations

import torch

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    Layout,
)
from dualml_torch.algorithms.training import TorchTraining
from dualml_torch.parallel.aggregation import TorchGradientBuckets
from dualml_torch.parallel.data_parallel import TorchDataParallel, make_replicas
from dualml_torch.parallel.overlap import TorchReducingBuckets


class TorchParallel(
    TorchTraining, GradientAccess, CommOverlap, FrameworkDataParallel, DeviceReplication
):
    """A training with PyTorch's data parallel capabilities, see `dualml.backend.capability`."""

    def use_contiguous_format(self) -> None:
        """Store every tensor in contiguous format, as buckets require; the kernel choice is
        dropped, and recorded graphs are made anew."""
        self.network.to(memory_format=torch.contiguous_format)
        self.choice = None
        if self.recorded is not None:
            self.recorded.clear()

    def make_buckets(self, layout: Layout) -> TorchGradientBuckets:
        """Store the network contiguously and return gradient buckets of this layout."""
        self.use_contiguous_format()
        return TorchGradientBuckets(self, layout)

    def make_reducing_buckets(self, layout: Layout, comm: Communicator) -> TorchReducingBuckets:
        """Store the network contiguously and return buckets that gradient hooks send; the recorded
        graph is dropped."""
        self.use_contiguous_format()
        self.recorded = None  # no hook would be called
        return TorchReducingBuckets(self, layout, comm)

    def make_framework_buckets(self, comm: Communicator) -> TorchDataParallel:
        """Wrap the network, which is put into contiguous format in place, in
        `DistributedDataParallel`, and return the buckets whose gradients it sums over the ranks;
        all ranks call it. Unsupported: a single rank."""
        self.use_contiguous_format()
        return TorchDataParallel(self, comm)

    def enable_replicas(self) -> None:
        """Replace the network by `Replicas` over this process's GPUs and drop the recorded graph.
        Unsupported: fewer than two GPUs, or a model that is not on one."""
        self.use_contiguous_format()
        self.network, self.recorded = make_replicas(self.network, self.device), None
