"""A training of the reference with capabilities for data parallel ranks: gradients in buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    Array,
    CommOverlap,
    DeviceReplication,
    FrameworkDataParallel,
    GradientAccess,
    Layout,
)
from dualml.backend.reference.training import NumpyTraining


class NumpyBuckets:
    """Float64 NumPy implementation of `dualml.backend.capability.GradientBuckets`."""

    def __init__(self, training: NumpyTraining, layout: Layout) -> None:
        self.training, self.layout = training, layout
        self.shapes = {name: w.shape for name, w in training.model.weights.items()}

    def gradient(self, batch: Array, factor: float) -> tuple[float | None, list[Array]]:
        """Return the mean loss of ``batch`` and its mean gradient times ``factor`` and the loss
        scale, one float64 vector per bucket; None and zeros for an empty batch."""
        if not len(batch):
            return None, self.flatten({name: np.zeros(s) for name, s in self.shapes.items()})
        loss, gradients = self.training.gradient(batch, factor)
        after = factor if self.training.scaler is None else 1.0
        return loss, [after * bucket for bucket in self.flatten(gradients)]

    def update(self, gradients: Sequence[Array], step: int) -> None:
        """Apply update ``step`` with the gradients in bucket form, of the scaled loss; a loss
        scaler may skip it."""
        self.training.update(self.unflatten(gradients), step)

    def parameters(self) -> list[Array]:
        """Return copies of the parameters, one float64 vector per bucket."""
        return self.flatten(self.training.model.weights)

    def assign(self, parameters: Sequence[Array]) -> None:
        """Replace the model's parameters by copies of these bucket vectors."""
        self.training.model.weights = self.unflatten(parameters)

    def bucket_bytes(self) -> int:
        """Return the bytes of all buckets, which are copies beside the model's own arrays."""
        return sum(bucket.nbytes for bucket in self.parameters())

    def flatten(self, named: Mapping[str, Array]) -> list[Array]:
        """Concatenate named arrays into one 1-D array per bucket."""
        return [np.concatenate([named[n].ravel() for n in names]) for names in self.layout]

    def unflatten(self, tensors: Sequence[Array]) -> dict[str, Array]:
        """Split one vector per bucket into copies with the parameters' names and shapes, in the
        order of the model's parameters."""
        parts = {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            ends = np.cumsum([np.prod(self.shapes[n], dtype=int) for n in names])
            for name, part in zip(names, np.split(tensor, ends[:-1]), strict=True):
                parts[name] = part.reshape(self.shapes[name]).copy()
        return {name: parts[name] for name in self.shapes}


class NumpyReducingBuckets(NumpyBuckets):
    """Implementation of `dualml.backend.capability.ReducingBuckets` without overlap: the buckets
    are reduced after the whole gradient, so that no time is saved."""

    detail = "no overlap: all_reduce of each bucket when all are there"

    def __init__(self, training: NumpyTraining, layout: Layout, comm: Communicator) -> None:
        super().__init__(training, layout)
        self.comm = comm

    def wait_reduction(self, gradients: Sequence[Array]) -> list[Array]:
        """All-reduce (sum) the buckets in place, one after the other, and return them."""
        return [self.comm.all_reduce(g, inplace=True) for g in gradients]


class NumpyParallel(NumpyTraining, GradientAccess, CommOverlap):
    """The reference's training with the capabilities `GradientAccess` and `CommOverlap`."""

    missing_reasons: ClassVar = {
        FrameworkDataParallel: "the NumPy reference has no data parallel training of its own",
        DeviceReplication: "the NumPy reference has one device, and no replicas to "
        "split a batch on",
    }

    def make_buckets(self, layout: Layout) -> NumpyBuckets:
        """Return the gradient buckets of this training, grouped as in ``layout``."""
        return NumpyBuckets(self, layout)

    def make_reducing_buckets(self, layout: Layout, comm: Communicator) -> NumpyReducingBuckets:
        """Return buckets grouped as in ``layout`` that are all-reduced over ``comm`` after the
        whole gradient."""
        return NumpyReducingBuckets(self, layout, comm)
