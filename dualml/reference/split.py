"""Segments of a split model in float64 NumPy: forward and backward passes of parts, written by
hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.backend import (
    Array,
    Arrays,
    Attending,
    Carrying,
    Memory,
    MixedStage,
    PlacedStage,
    Recipe,
    Recomputing,
    Regathering,
    Segment,
    Weighable,
)
from dualml.communicator import How
from dualml.model.decoder import GroupedAttention
from dualml.model.recompute import Stretch, stretches
from dualml.model.spec import parameters
from dualml.reference.losses import LOSSES
from dualml.reference.model import (
    Entry,
    Tape,
    backward,
    ended,
    forward,
    gradients_alone,
    present,
    rounding,
)
from dualml.reference.ring import NumpyBlockAttention
from dualml.reference.shard import NumpyShardable
from dualml.reference.tape import nbytes, taped
from dualml.reference.types import copies

Values = tuple[Array, ...]


class NumpyStage(
    Weighable, MixedStage, NumpyShardable, Recomputing, Attending, Regathering, Carrying
):
    """Float64 NumPy implementation of `dualml.backend.stage.Stage`.

    Args:
        segments: layers of this rank, stage by stage.
        first: whether segment 0 receives the samples.
    """

    def __init__(self, segments: Sequence[Segment], recipe: Recipe, *, first: bool) -> None:
        self.segments, self.recipe, self.first = segments, recipe, first
        self.criterion, self.x, self.y = LOSSES[recipe.loss], recipe.x, recipe.y
        shapes = parameters([layer for segment in segments for layer in segment.layers])
        self.own = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.sums = copies(self.own)
        self._state = recipe.rule.init(self.own)
        self.kept: dict[tuple[int, int], Any] = {}
        self.again = [stretches(segment.layers, recipe.recompute) for segment in segments]
        self.measuring, self.infers = False, 0
        self.ended = dict[int, Arrays]()
        self.round, self.overflowing = rounding(recipe.precision)
        self.lower = recipe.precision.lower

    # --- data -------------------------------------------------------------------------------------

    def samples(self, index: Array) -> Array:
        return self.inputs(self.x[index])

    def labels(self, index: Array) -> Array:
        return self.y[index]

    def inputs(self, x: Array) -> Array:
        return x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64)

    def targets(self, y: Array) -> Array:
        return y

    def empty(self, shape: tuple[int, ...]) -> Array:
        return np.empty(shape)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return np.concatenate(parts, axis)

    def cut(self, x: Array, axis: int, part: int, parts: int) -> Array:
        return np.ascontiguousarray(np.split(x, parts, axis)[part])

    def attention(self, layer: GroupedAttention, places: Array) -> NumpyBlockAttention:
        return NumpyBlockAttention(layer, places)

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        out, tape = self._through(segment, values, masks, self.again[segment])
        self.kept[segment, micro] = tape
        self.ended.setdefault(micro, {}).update(ended(tape))
        return out

    def states(self) -> dict[int, Arrays]:
        states, self.ended = self.ended, {}
        return states

    def _through(
        self,
        segment: int,
        values: Values,
        masks: Sequence[Array] = (),
        again: Sequence[Stretch] = (),
    ) -> tuple[Values, Tape]:
        own, spec = self.segments[segment], self.recipe.spec
        here = present(spec, values[-1]) if own.layers == spec.layers else None
        with self.overflowing():
            return forward(own.layers, self.own, values, masks, here, self.round, own.lower, again)

    def loss(self, micro: int, values: Values, labels: Array, masks: Sequence[Array] = ()) -> float:
        segment = len(self.segments) - 1
        out, tape = self._through(segment, values, masks, self.again[segment])
        with self.overflowing():
            loss, gradient = self.criterion(out[-1], labels)
        self.kept[segment, micro] = (tape, gradient)
        self.ended.setdefault(micro, {}).update(ended(tape))
        return loss

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        return self._back(segment, self.kept.pop((segment, micro)), gradients)

    def forget(self, segment: int, micro: int) -> None:
        self._put(segment, micro, None)

    def remember(self, segment: int, micro: int, x: Array) -> None:
        self._put(segment, micro, x if self.round is None else self.round(x))

    def _put(self, segment: int, micro: int, x: Array | None) -> None:
        """Replace the saved input of the segment's first layer, a `Linear`."""
        tape = self.kept[segment, micro]
        entry: Any = tape[0]
        if isinstance(entry, Entry):
            tape[0] = entry._replace(cache=x)
        else:
            tape[0] = entry._replace(values=(*entry.values[:-1], x))

    def _back(self, segment: int, tape: Any, gradients: Values) -> Values | None:
        flow: Values | None = None
        with self.overflowing():
            if self.first and segment == 0:
                grads = gradients_alone(tape, self.own, gradients)
            else:
                flow, grads = backward(tape, self.own, gradients)
            for name, g in grads.items():
                self.sums[name] += self.rounded(g) if self.rounds else g
                if self.rounds:
                    self.sums[name][...] = self.rounded(self.sums[name])
        return flow

    def loss_backward(self, micro: int, share: float) -> tuple[None, Values | None]:
        segment = len(self.segments) - 1
        tape, gradient = self.kept.pop((segment, micro))
        return None, self._back(segment, tape, (share * gradient,))

    def lazy(self, losses: Sequence[tuple[float, float]]) -> float:
        return sum(loss * share for loss, share in losses)

    def held(self) -> int:
        return taped(self.kept)

    def memory(self, batch: Any = None) -> Memory:
        return Memory(nbytes(self.own), nbytes(self.sums), nbytes(self._state))

    # --- evaluation -------------------------------------------------------------------------------

    def infer(self, segment: int, values: Values) -> tuple[Values, list[Array]]:
        out, tape = self._through(segment, values)
        return out, [entry.output for entry in tape if isinstance(entry, Entry)]

    def score(self, logits: Array, labels: Array) -> tuple[float, Array]:
        return float(self.criterion(logits, labels)[0]), logits.argmax(axis=-1)

    # --- gradients and parameters -----------------------------------------------------------------

    def zero(self) -> None:
        for total in self.sums.values():
            total[...] = 0
        self.kept.clear()

    def flat(self) -> Array:
        return np.concatenate([np.zeros(0), *(g.ravel() for g in self.sums.values())])

    def assign_flat(self, flat: Array) -> None:
        start = 0
        for total in self.sums.values():
            total[...] = flat[start : start + total.size].reshape(total.shape)
            start += total.size

    def gradients(self) -> Arrays:
        return copies(self.sums)

    def update(self, step: int) -> None:
        self.update_scaled(step, step, 1.0)

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        gradients = self.sums
        if scale != 1:
            gradients = {name: g * (1 / scale) for name, g in self.sums.items()}
        self.own, self._state = self.recipe.rule.update(
            self.own, gradients, self._state, made, self.recipe.rate(step)
        )

    # --- low precision ----------------------------------------------------------------------------

    @property
    def how(self) -> How:
        return How("composed", f"float64, rounded to {self.recipe.precision.type}")

    def packed(self, x: Array) -> Array:
        return x

    unpacked, widened, to_receive = packed, packed, empty

    def rounded(self, x: Array) -> Array:
        assert self.round is not None
        with self.overflowing():
            return self.round(x)

    def finite(self) -> bool:
        return all(np.isfinite(g).all() for g in self.sums.values())

    def weights(self) -> Arrays:
        return copies(self.own)

    def state(self) -> dict[str, Arrays]:
        return {slot: copies(named) for slot, named in self._state.items()}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.own = copies(weights)
        self._state = {slot: copies(named) for slot, named in state.items()}


class NumpyPlacedStage(NumpyStage, PlacedStage):
    """All stages of a model on logical devices: values that pass between devices are copied."""

    transfers_by = "numpy.ndarray.copy"

    def transfer(self, x: Array, segment: int) -> Array:
        return x.copy()
