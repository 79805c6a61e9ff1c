"""Sharding in the reference: a part of a model in flat vectors, and its optimizer over slices of
them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualml.algorithms.optim.base import State
from dualml.backend import Array, TrainingSpec
from dualml.backend.reference.tape import nbytes
from dualml.backend.reference.types import Params
from dualml.backend.shard import FlatLayout, FlatParameterStorage, Slots, parameter_spans
from dualml.backend.shard import State as Places


class NumpyOptimizerShard:
    """Float64 NumPy implementation of `dualml.backend.shard.OptimizerShard`."""

    def __init__(
        self, recipe: TrainingSpec, weights: Sequence[Array], state: Places | None = None
    ) -> None:
        self.recipe, self.weights = recipe, {str(i): w for i, w in enumerate(weights)}
        self._state: State = recipe.rule.init(self.weights)
        if state is not None:
            self._state = {
                slot: dict(zip(self.weights, state[slot], strict=True))
                for slot in recipe.rule.state_keys
            }

    def finite(self, gradients: Sequence[Array]) -> bool:
        """Return whether all elements of all gradients are finite."""
        return all(np.isfinite(g).all() for g in gradients)

    def update(self, gradients: Sequence[Array], step: int, made: int, scale: float) -> None:
        """Update the weight vectors and the optimizer state in place with ``gradients / scale``.
        The learning rate is that of update ``step``; ``made`` is the optimizer's own step count,
        which leaves out skipped updates."""
        given = dict(zip(self.weights, gradients, strict=True))
        if scale != 1:
            given = {name: g * (1 / scale) for name, g in given.items()}
        after, state = self.recipe.rule.update(
            self.weights, given, self._state, made, self.recipe.learning_rate(step)
        )
        for name, vector in self.weights.items():
            vector[...] = after[name]
        self._write_state(state)

    def _write_state(self, state: State) -> None:
        """Write the new state in place, because other objects hold views of these vectors."""
        for slot, named in self._state.items():
            for name, vector in named.items():
                vector[...] = state[slot][name]

    def state(self) -> Slots:
        """Return state key → copies of the state vectors, one per weight vector."""
        return {slot: [a.copy() for a in own.values()] for slot, own in self._state.items()}

    def load(self, state: Slots, made: int) -> None:
        """Overwrite the state vectors in place; the reference keeps no count and ignores
        ``made``."""
        slots = self.recipe.rule.state_keys
        self._write_state({s: dict(zip(self.weights, state[s], strict=True)) for s in slots})

    def state_bytes(self) -> int:
        """Return the bytes of all state vectors."""
        return nbytes(self._state)


class NumpyFlatParameters(FlatParameterStorage):
    """Float64 NumPy implementation of `dualml.backend.shard.FlatParameterStorage`, for a stage with
    these attributes."""

    params: Params
    gradient_sums: Params
    saved: dict[tuple[int, int], object]
    _state: State
    #: Whether gradients are rounded to low precision as they are accumulated.
    rounds_gradients = False

    def flatten(
        self, weights: FlatLayout, gradients: FlatLayout
    ) -> tuple[list[Array], list[Array]]:
        """Replace parameters and gradient sums by views into new zero-filled float64 vectors and
        return the vectors. The stage's own optimizer state is discarded."""
        self._state, self.rounds_gradients = {}, gradients.low_precision
        return bind_to_vectors(self.params, weights), bind_to_vectors(self.gradient_sums, gradients)

    def zero_vector(self, vector: Array) -> None:
        """Fill the vector with zeros in place."""
        vector[...] = 0

    def make_optimizer_shard(
        self, recipe: TrainingSpec, weights: Sequence[Array], state: Places | None = None
    ) -> NumpyOptimizerShard:
        """Return an optimizer that updates the vectors ``weights`` in place; ``state`` is memory
        for its state, as in the base class."""
        return NumpyOptimizerShard(recipe, weights, state)

    def copy_from_host(self, vector: Array, array: Array) -> None:
        """Overwrite ``vector`` by the elements of ``array``."""
        vector[...] = array

    def copy_to_host(self, vector: Array, array: Array) -> None:
        """Overwrite ``array`` by the elements of ``vector``."""
        array[...] = vector

    def drop_saved_activations(self) -> None:
        """Discard the tapes of all micro-batches."""
        self.saved.clear()


def bind_to_vectors(arrays: Params, how: FlatLayout) -> list[Array]:
    """Replace each array by a view into new zero-filled vectors of this layout; return the
    vectors."""
    shapes = {name: a.shape for name, a in arrays.items()}
    memory = [np.zeros(size) for size in how.buffer_lengths]
    vectors = []
    for number, (names, length) in enumerate(zip(how.names, how.lengths, strict=True)):
        vector = memory[how.slot_of(number)][:length]
        for name, (start, stop) in parameter_spans(names, shapes).items():
            arrays[name] = vector[start:stop].reshape(shapes[name])
        vectors.append(vector)
    return vectors
