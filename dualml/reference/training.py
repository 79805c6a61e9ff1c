"""The reference's training: a trial's model, optimizer and data in float64 NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualml.backend import (
    Array,
    Arrays,
    Carrying,
    Memory,
    Mixed,
    Observable,
    Recipe,
    Recomputing,
    Trace,
    Training,
    Weighable,
    batch_digest,
    chunks,
)
from dualml.communicator import How
from dualml.model.streams import beside
from dualml.optim.base import Params, State
from dualml.reference.losses import LOSSES
from dualml.reference.model import Entry, Model
from dualml.reference.tape import nbytes, taped
from dualml.reference.types import copies


class NumpyTraining(Training, Observable, Mixed, Weighable, Recomputing, Carrying):
    """Float64 NumPy implementation of `dualml.backend.Training`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.now = recipe, 0
        self.model = Model(recipe.spec, recipe.weights, recipe.precision, recipe.recompute)
        self.scaler, self.hidden = recipe.precision.scaler(), recipe.hidden(np.float64)
        self.x, self.y, self.loss = recipe.x, recipe.y, recipe.loss
        self._state: State = recipe.rule.init(self.model.weights)
        #: Samples of the last gradient, and their final states.
        self.ended = list[tuple[Array, Params]]()

    @property
    def held(self) -> How:
        return How("composed", f"float64, rounded to {self.recipe.precision.type}")

    def gradient(self, batch: Array, factor: float = 1.0) -> tuple[float, Params]:
        """Return the mean loss and mean gradient of the batch, accumulated over chunks. With loss
        scaling the chunks' shares and ``factor`` are part of the scale, which decides what
        overflows."""
        total: Params = {name: np.zeros_like(w) for name, w in self.model.weights.items()}
        mean, states = 0.0, self.ended
        states.clear()
        for part, share in chunks(batch, self.recipe.chunk):
            drawn = self.drawn(part)
            x, y = self.given(part)
            scaled = self.scaler is not None
            scale, after = (self.scale * share * factor, 1.0) if scaled else (1.0, share)
            loss, grads = self.model.loss_and_gradients(x, y, self.loss, drawn, scale)
            mean += share * loss
            states.append((part, self.model.ended))
            with self.model.overflowing():
                for name, g in grads.items():
                    total[name] += after * g
        return mean, total

    def drawn(self, part: Array) -> tuple[Array, ...]:
        """Return the layers' extra inputs in the next update: dropout masks and initial states."""
        spec, seed = self.model.spec, self.recipe.seed
        return tuple(beside(spec, seed, self.now + 1, part, self.hidden).values())

    def step(self, batch: Array, step: int) -> float:
        loss, grads = self.gradient(batch)
        self.update(grads, step)
        return loss

    def update(self, gradients: Params, step: int) -> None:
        if self.hidden is not None:
            for part, states in self.ended:
                self.hidden.after(part, states)
        finite = self.scaler is None or all(np.isfinite(g).all() for g in gradients.values())
        gradients = self.unscaled(gradients)
        if self.accepts(finite):
            made = self.made(step)
            self.model.weights, self._state = self.recipe.rule.update(
                self.model.weights, gradients, self._state, made, self.recipe.rate(step)
            )
        self.now = step

    def memory(self, batch: Array | None = None) -> Memory:
        """Count the bytes held; the gradient is one array per parameter, of the parameter's
        type."""
        weights = nbytes(self.model.weights)
        activations = None
        if batch is not None:
            part = batch[: self.recipe.chunk]
            drawn = self.drawn(part)
            x = self.model.inputs(self.given(part)[0])
            with self.preserving_statistics():
                _, tape = self.model.forward(x, drawn, self.model.again, learning=True)
            activations = taped(tape, but=[x, *self.model.weights.values()])
        return Memory(weights, weights, nbytes(self._state), activations)

    def trace(self, batch: Array, probe: Array) -> Trace:
        with self.preserving_statistics():
            loss, grads = self.gradient(batch)
        return Trace(*self.look(batch, probe), loss=loss, gradients=self.unscaled(grads))

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        _, tape = self.model.forward(self.x[probe])
        return batch_digest(*self.given(batch)), {
            entry.name: entry.output for entry in tape if isinstance(entry, Entry)
        }

    def given(self, batch: Array) -> tuple[Array, Array]:
        return self.x[batch], self.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        logits, _ = self.model.forward(x)
        return float(LOSSES[self.loss](logits, y)[0]), logits.argmax(axis=-1)

    def weights(self) -> Arrays:
        both = {**self.model.weights, **self.model.buffers}
        return copies({name: both[name] for name in self.recipe.spec.tensors()})

    def running_statistics(self) -> Arrays:
        return copies(self.model.buffers)

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        self.model.buffers = copies(statistics)

    def state(self) -> dict[str, Arrays]:
        own = {slot: copies(named) for slot, named in self._state.items()} | self.scaling()
        return own if self.hidden is None else own | self.hidden.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        spec = self.recipe.spec
        self.model.weights = copies({name: weights[name] for name in spec.parameters()})
        self.load_running_statistics({name: weights[name] for name in spec.buffers})
        own = self.rescale(state if self.hidden is None else self.hidden.load(state))
        self._state = {slot: copies(named) for slot, named in own.items()}
        self.now = step
