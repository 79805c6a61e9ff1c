"""Part of a model in flat vectors, and an optimizer over slices of them.

On a CPU a parameter whose data `Tensor.from_numpy` made of a slice of an array lies in that slice:
compiled cells read and assign it there (measured, and tested in tests/mindspore).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from dualml.backend import Array, TrainingSpec
from dualml.backend.shard import FlatLayout, FlatParameterStorage, Slots, State, parameter_spans
from dualml.common.errors import Unsupported
from dualml_ms.algorithms.loss_scaling import (
    AllFinite,
    DueRateSchedule,
    ScalarCache,
    UnscaledUpdate,
)
from dualml_ms.algorithms.memory import state_bytes
from dualml_ms.algorithms.optim import load_state, optimizer, state
from dualml_ms.common.compiled import CompiledCell


class VectorUpdate(nn.Cell):
    """A cell that makes one update with given gradients, one per vector of parameters; if
    ``scaled``, the inverse of the loss scale is its first argument."""

    def __init__(self, optimizer: nn.Optimizer, scaled: bool) -> None:
        super().__init__(auto_prefix=False)
        self.scaled, self.optimizer = scaled, UnscaledUpdate(optimizer) if scaled else optimizer

    def construct(self, *tensors):
        """Make one update with gradients, one per vector; with a scaled loss the inverse scale
        comes before them."""
        if self.scaled:
            return self.optimizer(tensors[0], tensors[1:])
        return self.optimizer(tensors)


class MindSporeShard:
    """MindSpore implementation of `dualml.backend.shard.OptimizerShard`: the optimizer over the
    vectors ``weights``, whose memory it updates; with ``state``, its state lies in these vectors'
    memory."""

    def __init__(
        self, recipe: TrainingSpec, weights: Sequence[ms.Tensor], state: State | None = None
    ) -> None:
        self.scaled, self.scalar = recipe.precision.loss_scale is not None, ScalarCache()
        parameters = [ms.Parameter(w, name=f"shard{i}") for i, w in enumerate(weights)]
        for parameter, vector in zip(parameters, weights, strict=True):
            parameter.set_data(vector)  # its memory, not a copy of it
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.learning_rates()
        self.clock: DueRateSchedule | None = None
        if self.scaled and not recipe.schedule.constant:
            rates = self.clock = DueRateSchedule(rates)
        self.optimizer = optimizer(recipe.rule, parameters, rates)
        for slot, vectors in (state or {}).items():
            for parameter, vector in zip(getattr(self.optimizer, slot), vectors, strict=True):
                parameter.set_data(vector)
        self.all_finite = CompiledCell(AllFinite())
        self.apply = CompiledCell(VectorUpdate(self.optimizer, self.scaled))

    def finite(self, gradients: Sequence[ms.Tensor]) -> bool:
        """Return whether all elements of the gradients are finite."""
        return bool(self.all_finite(*gradients).asnumpy())

    def update(self, gradients: Sequence[ms.Tensor], step: int, made: int, scale: float) -> None:
        """Make update ``step`` of the vectors in place, with the gradients divided by ``scale`` if
        the loss is scaled; ``made`` is ignored, because the optimizer counts its own steps."""
        if self.clock is not None:
            self.clock.due.set_data(ms.Tensor(step - 1, ms.int32))
        inverse = [self.scalar(1 / scale)] if self.scaled else []
        self.apply(*inverse, *gradients)

    def state(self) -> Slots:
        """Return copies of the optimizer state: state name → one array per vector."""
        return {slot: list(named.values()) for slot, named in state(self.optimizer).items()}

    def load(self, state: Slots, made: int) -> None:
        """Restore the optimizer state, state name → one array per vector, and the count of updates,
        ``made``; 0 is a fresh start, whatever ``state`` is."""
        named = {slot: dict(enumerate(parts)) for slot, parts in state.items()}
        load_state(self.optimizer, named, made)

    def state_bytes(self) -> int:
        """Return the bytes of the state of this shard's optimizer."""
        return state_bytes(self.optimizer)


class MindSporeShardable(FlatParameterStorage):
    """MindSpore implementation of `dualml.backend.shard.FlatParameterStorage`, as a base class of a
    stage (`MindSporeStage`) with these attributes."""

    parameters: dict[str, ms.Parameter]
    sums: dict[str, ms.Parameter]
    optimizer: Any
    apply: Any
    apply_scaled: Any
    saved_tensors: dict[tuple[int, int], Any]
    precision: str

    def flatten(
        self, weights: FlatLayout, gradients: FlatLayout
    ) -> tuple[list[ms.Tensor], list[ms.Tensor]]:
        """Replace the data of parameters and gradient sums by views into new vectors of the two
        layouts, and return the vectors. Only shapes are kept: all values are zero then, and the
        caller writes the weights. The stage's own optimizer is discarded.

        Raises:
            Unsupported: weights in a low-precision type other than float16.
        """
        if weights.low_precision and self.precision != "fp16":
            raise Unsupported(
                f"MindSpore has no kernels of {self.precision} on a CPU, where its numbers are "
                'held in float32: use precision = "fp16", or leave out zero_param_dtype'
            )
        self.optimizer = self.apply = self.apply_scaled = None
        return lay_out_vectors(self.parameters, weights), lay_out_vectors(self.sums, gradients)

    def zero_vector(self, vector: ms.Tensor) -> None:
        """Fill a vector with zeros in place."""
        vector.asnumpy()[...] = 0

    def make_optimizer_shard(
        self, recipe: TrainingSpec, weights: Sequence[ms.Tensor], state: State | None = None
    ) -> MindSporeShard:
        """Make the training's optimizer over these vectors, whose memory it updates; with
        ``state``, state name → vectors, its state lies in that memory."""
        return MindSporeShard(recipe, weights, state)

    def copy_from_host(self, vector: ms.Tensor, array: Array) -> None:
        """Copy ``array`` into ``vector`` in place."""
        vector.asnumpy()[...] = array

    def copy_to_host(self, vector: ms.Tensor, array: Array) -> None:
        """Copy ``vector`` into ``array`` in place."""
        array[...] = vector.asnumpy()

    def drop_saved_activations(self) -> None:
        """Forget all tensors that are saved for backward passes."""
        self.saved_tensors.clear()


def lay_out_vectors(parameters: Mapping[str, ms.Parameter], how: FlatLayout) -> list[ms.Tensor]:
    """Allocate the zero-filled vectors of the layout ``how`` and let each parameter lie in its part
    of them, which sets it to zero and to their type; return the vectors, float16 or float32."""
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    kind, typed = (np.float16, ms.float16) if how.low_precision else (np.float32, ms.float32)
    memory: list[Array] = [np.zeros(size, kind) for size in how.buffer_lengths]
    vectors = []
    for number, (names, length) in enumerate(zip(how.names, how.lengths, strict=True)):
        vector = memory[how.slot_of(number)][:length]
        for name, (start, stop) in parameter_spans(names, shapes).items():
            part = vector[start:stop].reshape(shapes[name])
            parameters[name].set_dtype(typed)
            parameters[name].set_data(ms.Tensor.from_numpy(part))
        vectors.append(ms.Tensor.from_numpy(vector))
    return vectors
