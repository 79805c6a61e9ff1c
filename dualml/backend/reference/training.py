"""The reference's training: a trial's model, optimizer and data in float64 NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.streams import extra_inputs
from dualml.algorithms.optim.base import Params, State
from dualml.backend import (
    ActivationCapture,
    ActivationRecomputation,
    Array,
    Arrays,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    MixedPrecision,
    StateCarryover,
    Training,
    TrainingSpec,
    batch_digest,
    split_into_chunks,
)
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.model import Model, TapeEntry
from dualml.backend.reference.tape import nbytes, owned_bytes
from dualml.backend.reference.types import float64_copies


class NumpyTraining(
    Training,
    ActivationCapture,
    MixedPrecision,
    MemoryReport,
    ActivationRecomputation,
    StateCarryover,
):
    """Float64 NumPy implementation of `dualml.backend.Training`."""

    def __init__(self, recipe: TrainingSpec) -> None:
        self.recipe, self.step_count = recipe, 0
        self.model = Model(recipe.spec, recipe.weights, recipe.precision, recipe.recompute)
        self.scaler = recipe.precision.make_scaler()
        self.hidden = recipe.make_hidden_states(np.float64)
        self.x, self.y, self.loss = recipe.x, recipe.y, recipe.loss
        self._state: State = recipe.rule.init(self.model.weights)
        #: Samples of the last gradient, and their final states.
        self.final_states = list[tuple[Array, Params]]()

    @property
    def precision_policy(self) -> Implementation:
        """Implementation record: float64 values, rounded to the low-precision type."""
        return Implementation("composed", f"float64, rounded to {self.recipe.precision.type}")

    def gradient(self, batch: Array, factor: float = 1.0) -> tuple[float, Params]:
        """Return the mean loss and mean gradient of the batch, accumulated over chunks; nothing is
        updated but running statistics. With loss scaling it is the gradient of the scaled loss
        times ``factor``; without, ``factor`` is ignored and left to the caller."""
        total: Params = {name: np.zeros_like(w) for name, w in self.model.weights.items()}
        mean, states = 0.0, self.final_states
        states.clear()
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            drawn = self.draw_extra_inputs(part)
            x, y = self.fetch_batch(part)
            scaled = self.scaler is not None
            scale, after = (self.loss_scale * share * factor, 1.0) if scaled else (1.0, share)
            loss, grads = self.model.loss_and_gradients(x, y, self.loss, drawn, scale)
            mean += share * loss
            states.append((part, self.model.final_states))
            with self.model.overflowing():
                for name, g in grads.items():
                    total[name] += after * g
        return mean, total

    def draw_extra_inputs(self, part: Array) -> tuple[Array, ...]:
        """Return the layers' extra inputs for the samples ``part`` in the next update: dropout
        masks and initial states."""
        spec, seed = self.model.spec, self.recipe.seed
        return tuple(extra_inputs(spec, seed, self.step_count + 1, part, self.hidden).values())

    def step(self, batch: Array, step: int) -> float:
        """Compute the gradient of ``batch`` and apply it as update ``step``; return the mean loss
        before the update."""
        loss, grads = self.gradient(batch)
        self.update(grads, step)
        return loss

    def update(self, gradients: Params, step: int) -> None:
        """Apply update ``step`` with gradients of the scaled loss. An update whose gradients are
        not finite is skipped under loss scaling; carried hidden states are stored either way."""
        if self.hidden is not None:
            for part, states in self.final_states:
                self.hidden.store_final_states(part, states)
        finite = self.scaler is None or all(np.isfinite(g).all() for g in gradients.values())
        gradients = self.unscale_gradients(gradients)
        if self.should_step(finite):
            made = self.applied_steps(step)
            self.model.weights, self._state = self.recipe.rule.update(
                self.model.weights, gradients, self._state, made, self.recipe.learning_rate(step)
            )
        self.step_count = step

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Count the bytes held: the gradient as one array per parameter, and the activations of the
        first chunk of ``batch``, None without a batch."""
        weights = nbytes(self.model.weights)
        activations = None
        if batch is not None:
            part = batch[: self.recipe.chunk]
            drawn = self.draw_extra_inputs(part)
            x = self.model.inputs(self.fetch_batch(part)[0])
            with self.preserving_statistics():
                _, tape = self.model.forward(x, drawn, self.model.spans, learning=True)
            activations = owned_bytes(tape, exclude=[x, *self.model.weights.values()])
        return MemoryUsage(weights, weights, nbytes(self._state), activations)

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return loss and unscaled gradients of ``batch``, with the dropout masks of the next
        update, and activations of the samples ``probe`` in evaluation mode; without an update."""
        with self.preserving_statistics():
            loss, grads = self.gradient(batch)
        return BatchTrace(
            *self.capture_forward(batch, probe), loss=loss, gradients=self.unscale_gradients(grads)
        )

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the SHA-256 of ``batch``, which is not run, and layer name → output for the
        samples ``probe``, by a forward pass in evaluation mode."""
        _, tape = self.model.forward(self.x[probe])
        return batch_digest(*self.fetch_batch(batch)), {
            entry.name: entry.output for entry in tape if isinstance(entry, TapeEntry)
        }

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the samples and labels with these indices, in the dataset's types."""
        return self.x[batch], self.y[batch]

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y``, and the class with the largest logit of each
        sample or position."""
        logits, _ = self.model.forward(x)
        return float(LOSSES[self.loss](logits, y)[0]), logits.argmax(axis=-1)

    def weights(self) -> Arrays:
        """Return float64 copies of parameters and running statistics by canonical name."""
        both = {**self.model.weights, **self.model.buffers}
        return float64_copies({name: both[name] for name in self.recipe.spec.tensors()})

    def running_statistics(self) -> Arrays:
        """Return float64 copies of batch normalisation's running statistics; empty without it."""
        return float64_copies(self.model.buffers)

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Replace the running statistics by float64 copies."""
        self.model.buffers = float64_copies(statistics)

    def state(self) -> dict[str, Arrays]:
        """Return copies of the float64 optimizer state, with the loss scaler's state and carried
        hidden states, where there are any."""
        own = {
            slot: float64_copies(named) for slot, named in self._state.items()
        } | self.scaler_state()
        return own if self.hidden is None else own | self.hidden.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore weights, running statistics, optimizer state, loss scaler and carried hidden
        states after update ``step``."""
        spec = self.recipe.spec
        self.model.weights = float64_copies({name: weights[name] for name in spec.parameters()})
        self.load_running_statistics({name: weights[name] for name in spec.buffers})
        own = self.pop_scaler_state(state if self.hidden is None else self.hidden.load(state))
        self._state = {slot: float64_copies(named) for slot, named in own.items()}
        self.step_count = step
