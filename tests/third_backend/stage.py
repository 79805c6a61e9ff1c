"""The pipeline stage: the layers of one rank of a split model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.model.spec import parameter_shapes
from dualml.backend import Segment, TrainingSpec
from third_backend.network import LOSSES, forward
from third_backend.optim import Optimizer
from third_backend.values import Array, Value, backward

Values = tuple[Array, ...]


class SingleStage:
    """A pipeline stage in float32 NumPy that implements `dualml.backend.Stage`."""

    def __init__(self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool) -> None:
        self.segments, self.recipe, self.first = segments, recipe, first
        self.criterion, self.counts_saved_bytes, self.min_eval_batch = LOSSES[recipe.loss], False, 0
        shapes = parameter_shapes([layer for segment in segments for layer in segment.layers])
        self.own = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self.optimizer = Optimizer(recipe.rule, self.own)
        self.kept: dict[tuple[int, int], Any] = {}
        self.zero_grad()

    # --- data -------------------------------------------------------------------------------------

    def samples(self, index: Array) -> Array:
        return self.inputs(self.recipe.x[index])

    def labels(self, index: Array) -> Array:
        return self.recipe.y[index]

    def inputs(self, x: Array) -> Array:
        return x if np.issubdtype(x.dtype, np.integer) else np.float32(x)

    def targets(self, y: Array) -> Array:
        return y

    def empty(self, shape: tuple[int, ...]) -> Array:
        return np.empty(shape, np.float32)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis)

    def take_chunk(self, x: Array, axis: int, part: int, parts: int) -> Array:
        return np.ascontiguousarray(np.split(x, parts, axis)[part])

    # --- one micro-batch --------------------------------------------------------------------------

    def _run_segment(self, segment: int, values: Values, masks: Sequence[Array] = ()) -> Any:
        """Run a segment; return its parameters, inputs, outputs and the output of every layer."""
        own = {name: Value(w) for name, w in self.own.items()}
        inputs: list[Any] = [v if v.dtype.kind == "i" else Value(v) for v in values]
        outputs, layers = forward(self.segments[segment].layers, own, inputs, masks)
        return own, inputs, outputs, layers

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        own, inputs, outputs, _ = self._run_segment(segment, values, masks)
        self.kept[segment, micro] = (own, inputs, outputs)
        return tuple(np.ascontiguousarray(y.data) for y in outputs)

    def loss(self, micro: int, values: Values, labels: Array, masks: Sequence[Array] = ()) -> float:
        segment = len(self.segments) - 1
        own, inputs, outputs, _ = self._run_segment(segment, values, masks)
        value = self.criterion(outputs[-1], labels)
        self.kept[segment, micro] = (own, inputs, [value])
        return float(value.data)

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        own, inputs, outputs = self.kept.pop((segment, micro))
        wanted = [] if self.first and segment == 0 else inputs
        found = backward(list(zip(outputs, gradients, strict=True)), [*own.values(), *wanted])
        for name, g in zip(own, found, strict=False):
            self.sums[name] += g
        flow = found[len(own) :]
        return tuple(np.ascontiguousarray(g) for g in flow) if wanted else None

    def loss_backward(self, micro: int, share: float) -> tuple[None, Values | None]:
        return None, self.backward(len(self.segments) - 1, micro, (np.float32(share),))

    def combine_losses(self, losses: Sequence[tuple[float, float]]) -> float:
        return sum(loss * share for loss, share in losses)

    def saved_activation_bytes(self) -> int:
        return sum(v.data.nbytes for _, i, o in self.kept.values() for v in (*i, *o))

    # --- evaluation -------------------------------------------------------------------------------

    def infer(self, segment: int, values: Values) -> tuple[Values, list[Array]]:
        _, _, outputs, layers = self._run_segment(segment, values)
        return tuple(y.data for y in outputs), [y.data for y in layers.values()]

    def evaluate(self, logits: Array, labels: Array) -> tuple[float, Array]:
        return float(self.criterion(Value(logits), labels).data), logits.argmax(axis=-1)

    # --- gradients and parameters -----------------------------------------------------------------

    def zero_grad(self) -> None:
        self.sums = {name: np.zeros_like(w) for name, w in self.own.items()}
        self.kept.clear()

    def flatten_gradients(self) -> Array:
        return np.concatenate([np.zeros(0, np.float32), *(g.ravel() for g in self.sums.values())])

    def assign_flat_gradients(self, flat: Array) -> None:
        start = 0
        for total in self.sums.values():
            total[...] = flat[start : start + total.size].reshape(total.shape)
            start += total.size

    def gradients(self) -> dict[str, Array]:
        return {name: g.copy() for name, g in self.sums.items()}

    def update(self, step: int) -> None:
        self.optimizer.update(self.sums, step, self.recipe.learning_rate(step))

    def weights(self) -> dict[str, Array]:
        return {name: w.copy() for name, w in self.own.items()}

    def state(self) -> dict[str, dict[str, Array]]:
        return self.optimizer.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Any], step: int) -> None:
        for name, w in self.own.items():
            w[...] = weights[name]
        self.optimizer.load(state, step)
