"""A trial's model, optimizer and data in float64 NumPy: the step and the looks at it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualml.backend import (
    Array,
    Arrays,
    Memory,
    Observable,
    Recipe,
    Trace,
    Training,
    Weighable,
    batch_digest,
    chunks,
)
from dualml.model.dropout import masks
from dualml.optim.base import Params, State
from dualml.reference.losses import LOSSES
from dualml.reference.model import Model
from dualml.reference.tape import nbytes, taped
from dualml.reference.types import copies


class NumpyTraining(Training, Observable, Weighable):
    """See `dualml.backend.Training`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.now = recipe, 0
        self.model = Model(recipe.spec, recipe.weights)
        self.x, self.y, self.loss = recipe.x, recipe.y, recipe.loss
        self._state: State = recipe.rule.init(self.model.weights)

    def gradient(self, batch: Array) -> tuple[float, Params]:
        """Mean loss and mean gradient of the batch, in chunks."""
        total: Params = {name: np.zeros_like(w) for name, w in self.model.weights.items()}
        mean = 0.0
        for part, share in chunks(batch, self.recipe.chunk):
            drawn = tuple(masks(self.model.spec, self.recipe.seed, self.now + 1, part).values())
            x, y = self.given(part)
            loss, grads = self.model.loss_and_gradients(x, y, self.loss, drawn)
            mean += share * loss
            for name, g in grads.items():
                total[name] += share * g
        return mean, total

    def step(self, batch: Array, step: int) -> float:
        loss, grads = self.gradient(batch)
        self.update(grads, step)
        return loss

    def update(self, gradients: Params, step: int) -> None:
        self.model.weights, self._state = self.recipe.rule.update(
            self.model.weights, gradients, self._state, step, self.recipe.rate(step)
        )
        self.now = step

    def memory(self, batch: Array | None = None) -> Memory:
        """A gradient is made whole, in the type of the weights."""
        weights = nbytes(self.model.weights)
        activations = None
        if batch is not None:
            part = batch[: self.recipe.chunk]
            drawn = tuple(masks(self.model.spec, self.recipe.seed, self.now + 1, part).values())
            x = self.model.inputs(self.given(part)[0])
            _, tape = self.model.forward(x, drawn)
            activations = taped(tape, but=[x, *self.model.weights.values()])
        return Memory(weights, weights, nbytes(self._state), activations)

    def trace(self, batch: Array, probe: Array) -> Trace:
        loss, grads = self.gradient(batch)
        return Trace(*self.look(batch, probe), loss=loss, gradients=grads)

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        _, tape = self.model.forward(self.x[probe])
        return batch_digest(*self.given(batch)), {name: value for name, _, value, _ in tape}

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.x[batch], self.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        logits, _ = self.model.forward(x)
        return float(LOSSES[self.loss](logits, y)[0]), logits.argmax(axis=-1)

    def weights(self) -> Arrays:
        return copies(self.model.weights)

    def state(self) -> dict[str, Arrays]:
        return {slot: copies(named) for slot, named in self._state.items()}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.model.weights = copies(weights)
        self._state = {slot: copies(named) for slot, named in state.items()}
        self.now = step
