"""One update of the referee taken apart: flat gradients and parameters, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dualml.reference.training import NumpyTraining

Array = NDArray[Any]


class NumpyPieces:
    """See `dualml.backend.pieces.Pieces`."""

    def __init__(self, training: NumpyTraining, layout: Sequence[Sequence[str]]) -> None:
        self.training, self.layout = training, layout
        self.shapes = {name: w.shape for name, w in training.model.weights.items()}

    def gradient(self, batch: Array, factor: float) -> tuple[float | None, list[Array]]:
        if not len(batch):
            return None, self.flat({name: np.zeros(s) for name, s in self.shapes.items()})
        loss, gradients = self.training.gradient(batch)
        return loss, [factor * bucket for bucket in self.flat(gradients)]

    def update(self, gradients: Sequence[Array], step: int) -> None:
        self.training.update(self.named(gradients), step)

    def parameters(self) -> list[Array]:
        return self.flat(self.training.model.weights)

    def assign(self, parameters: Sequence[Array]) -> None:
        self.training.model.weights = self.named(parameters)

    def flat(self, named: dict[str, Array]) -> list[Array]:
        return [np.concatenate([named[n].ravel() for n in names]) for names in self.layout]

    def named(self, tensors: Sequence[Array]) -> dict[str, Array]:
        found = {}
        for names, tensor in zip(self.layout, tensors, strict=True):
            ends = np.cumsum([np.prod(self.shapes[n], dtype=int) for n in names])
            for name, part in zip(names, np.split(tensor, ends[:-1]), strict=True):
                found[name] = part.reshape(self.shapes[name]).copy()
        return {name: found[name] for name in self.shapes}
