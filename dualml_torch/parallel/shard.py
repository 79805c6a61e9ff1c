"""Part of a model in flat vectors, and an optimizer over slices of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dualml.backend import Array, TrainingSpec
from dualml.backend.shard import FlatLayout, FlatParameterStorage, Slots, State, parameter_spans
from dualml_torch.algorithms.loss_scaling import all_gradients_finite, unscale_gradients
from dualml_torch.algorithms.memory import state_bytes
from dualml_torch.algorithms.model.network import ModelPart, Network
from dualml_torch.algorithms.optim import load_state, optimizer, state
from dualml_torch.algorithms.recorded_gradient import Loss, RecordedGradient


class TorchShard:
    """PyTorch implementation of `dualml.backend.shard.OptimizerShard`."""

    def __init__(
        self, recipe: TrainingSpec, weights: Sequence[torch.Tensor], state: State | None = None
    ) -> None:
        self.recipe, self.state_vectors = recipe, state
        self.parameters = [torch.nn.Parameter(vector) for vector in weights]  # shares memory
        self.optimizer = optimizer(recipe.rule, self.parameters)
        self._place_state(0)

    @torch.no_grad()
    def _place_state(self, made: int) -> None:
        """Move the optimizer state, counted as that after ``made`` updates, into the state vectors
        that were given to the constructor, if there are any."""
        if self.state_vectors is None:
            return
        now = state(self.optimizer)
        for i, parameter in enumerate(self.parameters):
            own = {slot: vectors[i] for slot, vectors in self.state_vectors.items()}
            for slot, vector in own.items():
                vector.copy_(torch.from_numpy(now[slot][i]))
            self.optimizer.state[parameter] = {"step": made, **own}

    def finite(self, gradients: Sequence[torch.Tensor]) -> bool:
        """Set ``gradients`` as those of the vectors and return whether all elements are finite."""
        self._set_gradients(gradients)
        return all_gradients_finite(self.parameters)

    def update(self, gradients: Sequence[torch.Tensor], step: int, made: int, scale: float) -> None:
        """Make update ``step`` of the vectors; gradients of a loss times ``scale`` are divided by
        it in place. ``made`` is ignored, because the optimizer counts its own steps."""
        self._set_gradients(gradients)
        if scale != 1:
            unscale_gradients(self.parameters, scale)
        if not self.recipe.schedule.constant:
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.learning_rate(step)
        self.optimizer.advance()

    def _set_gradients(self, gradients: Sequence[torch.Tensor]) -> None:
        """Set the gradients of the vectors, one tensor each; they are not copied."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def state(self) -> Slots:
        """Return host copies of the optimizer state: state name → one array per vector."""
        return {slot: list(named.values()) for slot, named in state(self.optimizer).items()}

    def load(self, state: Slots, made: int) -> None:
        """Restore the state after ``made`` updates, in the given state vectors if there are any; 0
        is a fresh start, whatever ``state`` is."""
        named = {slot: dict(enumerate(parts)) for slot, parts in state.items()}
        load_state(self.optimizer, named, made)
        self._place_state(made)

    def state_bytes(self) -> int:
        """Return the bytes of the optimizer's state tensors at this moment."""
        return state_bytes(self.optimizer)


class TorchShardable(FlatParameterStorage):
    """PyTorch implementation of `dualml.backend.shard.FlatParameterStorage`, for a stage with these
    attributes."""

    device: torch.device
    type: torch.dtype
    parameters: dict[str, torch.nn.Parameter]
    optimizer: Any
    parts: list[ModelPart]
    criterion: Loss
    kept: dict[tuple[int, int], Any]
    saved_sizes: dict[tuple[int, int], dict[int, int]]
    #: Whether gradients are views into flat vectors.
    flattened = False
    #: On a CPU, if the stage is the whole model: its recorded graph, which accumulates gradients.
    recorded: RecordedGradient | None = None
    #: Micro-batch → inputs and labels for the recorded graph.
    pending_inputs: dict[int, tuple[Sequence[torch.Tensor], torch.Tensor]]

    def flatten(
        self, weights: FlatLayout, gradients: FlatLayout
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Move weights and gradients into new flat vectors and return both lists, weights first;
        parameters and their ``grad`` become views, and ``grad`` starts at zero. The stage's own
        optimizer is dropped; a whole model on a CPU computes by a recorded graph from now on. Only
        shapes are kept: the vectors hold zeros."""
        self.optimizer, self.flattened = None, True
        shapes = {name: tuple(p.shape) for name, p in self.parameters.items()}
        vectors, places = lay_out_vectors(shapes, weights, self.device, self.type)
        sums, grads = lay_out_vectors(shapes, gradients, self.device, self.type)
        for name, parameter in self.parameters.items():
            parameter.data, parameter.grad = places[name], grads[name]
        if self.device.type == "cpu" and isinstance(self.parts[-1], Network):
            self.recorded, self.pending_inputs = (
                RecordedGradient(self.parts[-1], self.criterion, accumulate=True),
                {},
            )
        return vectors, sums

    def zero_vector(self, vector: torch.Tensor) -> None:
        """Fill a device vector with zeros in place."""
        vector.zero_()

    def make_optimizer_shard(
        self, recipe: TrainingSpec, weights: Sequence[torch.Tensor], state: State | None = None
    ) -> TorchShard:
        """Make the training's optimizer over the vectors ``weights``, which it updates in place.
        ``state`` is memory for its state (state key → one vector for each of ``weights``); None: it
        allocates its own."""
        return TorchShard(recipe, weights, state)

    def copy_from_host(self, vector: torch.Tensor, array: Array) -> None:
        """Copy a host array into a device vector in place."""
        vector.copy_(torch.from_numpy(array))

    def copy_to_host(self, vector: torch.Tensor, array: Array) -> None:
        """Copy a device vector into a host array in place."""
        torch.from_numpy(array).copy_(vector)

    def drop_saved_activations(self) -> None:
        """Free all saved graphs, their byte counts and the recorded graph's pending inputs."""
        self.kept.clear()
        self.saved_sizes.clear()
        if self.recorded is not None:
            self.pending_inputs.clear()


def lay_out_vectors(
    shapes: Mapping[str, tuple[int, ...]], how: FlatLayout, device: torch.device, lower: torch.dtype
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Allocate vectors of zeros, float32 or ``lower`` as the layout says; return them, and each
    parameter's view into them by name. Vectors in one buffer slot share memory."""
    kind = lower if how.low_precision else torch.float32
    memory = [torch.zeros(size, dtype=kind, device=device) for size in how.buffer_lengths]
    vectors, places = [], {}
    for number, (names, length) in enumerate(zip(how.names, how.lengths, strict=True)):
        vector = memory[how.slot_of(number)][:length]
        for name, (start, stop) in parameter_spans(names, shapes).items():
            places[name] = vector[start:stop].view(shapes[name])
        vectors.append(vector)
    return vectors, places
