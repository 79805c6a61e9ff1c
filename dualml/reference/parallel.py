"""A training of the reference with capabilities for data parallel ranks: gradients in buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from dualml.backend import Array, Divisible, Layout, NativeParallel, Overlapping, Replicable
from dualml.communicator import Communicator
from dualml.reference.training import NumpyTraining


class NumpyPieces:
    """Float64 NumPy implementation of `dualml.backend.capability.GradientBuckets`."""

    def __init__(self, training: NumpyTraining, layout: Layout) -> None:
        self.training, self.layout = training, layout
        self.shapes = {name: w.shape for name, w in training.model.weights.items()}

    def gradient(self, batch: Array, factor: float) -> tuple[float | None, list[Array]]:
        if not len(batch):
            return None, self.flat({name: np.zeros(s) for name, s in self.shapes.items()})
        loss, gradients = self.training.gradient(batch, factor)
        after = factor if self.training.scaler is None else 1.0
        return loss, [after * bucket for bucket in self.flat(gradients)]

    def update(self, gradients: Sequence[Array], step: int) -> None:
        self.training.update(self.named(gradients), step)

    def parameters(self) -> list[Array]:
        return self.flat(self.training.model.weights)

    def assign(self, parameters: Sequence[Array]) -> None:
        self.training.model.weights = self.named(parameters)

    def held(self) -> int:
        return sum(bucket.nbytes for bucket in self.parameters())

    def flat(self, named: Mapping[str, Array]) -> list[Array]:
        """Concatenate named arrays into one 1-D array per bucket."""
        return [np.concatenate([named[n].ravel() for n in names]) for names in self.layout]

    def named(self, tensors: Sequence[Array]) -> dict[str, Array]:
        parts = {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            ends = np.cumsum([np.prod(self.shapes[n], dtype=int) for n in names])
            for name, part in zip(names, np.split(tensor, ends[:-1]), strict=True):
                parts[name] = part.reshape(self.shapes[name]).copy()
        return {name: parts[name] for name in self.shapes}


class NumpyOverlap(NumpyPieces):
    """Implementation of `dualml.backend.capability.ReducingBuckets` without overlap: the buckets
    are reduced after the whole gradient, so that no time is saved."""

    detail = "no overlap: all_reduce of each bucket when all are there"

    def __init__(self, training: NumpyTraining, layout: Layout, comm: Communicator) -> None:
        super().__init__(training, layout)
        self.comm = comm

    def settle(self, gradients: Sequence[Array]) -> list[Array]:
        return [self.comm.all_reduce(g, inplace=True) for g in gradients]


class NumpyParallel(NumpyTraining, Divisible, Overlapping):
    """The reference's training with the capabilities `GradientAccess` and `CommOverlap`."""

    lacks: ClassVar = {
        NativeParallel: "the NumPy reference has no data parallel training of its own",
        Replicable: "the NumPy reference has one device, and no replicas to split a batch on",
    }

    def pieces(self, layout: Layout) -> NumpyPieces:
        return NumpyPieces(self, layout)

    def overlapping(self, layout: Layout, comm: Communicator) -> NumpyOverlap:
        return NumpyOverlap(self, layout, comm)
