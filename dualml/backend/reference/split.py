"""Segments of a split model in float64 NumPy: forward and backward passes of parts, written by
hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.algorithms.model.recompute import LayerSpan, layer_spans
from dualml.algorithms.model.spec import parameter_shapes
from dualml.backend import (
    ActivationRecomputation,
    ActivationResharding,
    Array,
    Arrays,
    BlockwiseAttention,
    MemoryReport,
    MemoryUsage,
    MixedPrecisionStage,
    PlacedStage,
    Segment,
    StateCarryover,
    TrainingSpec,
)
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.model import (
    ForwardContext,
    Tape,
    TapeEntry,
    backward,
    final_states,
    forward,
    make_rounding,
    parameter_gradients,
    token_mask,
)
from dualml.backend.reference.ring import NumpyBlockAttention
from dualml.backend.reference.shard import NumpyFlatParameters
from dualml.backend.reference.tape import nbytes, owned_bytes
from dualml.backend.reference.types import float64_copies

Values = tuple[Array, ...]


class NumpyStage(
    MemoryReport,
    MixedPrecisionStage,
    NumpyFlatParameters,
    ActivationRecomputation,
    BlockwiseAttention,
    ActivationResharding,
    StateCarryover,
):
    """Float64 NumPy implementation of `dualml.backend.stage.Stage`.

    Args:
        segments: layers of this rank, stage by stage.
        first: whether segment 0 receives the samples.
    """

    def __init__(self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool) -> None:
        self.segments, self.recipe, self.first = segments, recipe, first
        self.criterion, self.x, self.y = LOSSES[recipe.loss], recipe.x, recipe.y
        shapes = parameter_shapes([layer for segment in segments for layer in segment.layers])
        self.params = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.gradient_sums = float64_copies(self.params)
        self._state = recipe.rule.init(self.params)
        self.saved: dict[tuple[int, int], Any] = {}
        self.spans = [layer_spans(segment.layers, recipe.recompute) for segment in segments]
        self.counts_saved_bytes, self.min_eval_batch = False, 0
        self.final_states = dict[int, Arrays]()
        self.round_value, self.overflowing = make_rounding(recipe.precision)
        self.is_low_precision = recipe.precision.is_low

    # --- data -------------------------------------------------------------------------------------

    def samples(self, index: Array) -> Array:
        """Return the training samples with these indices: float64, token numbers unchanged."""
        return self.inputs(self.x[index])

    def labels(self, index: Array) -> Array:
        """Return the labels of the training samples with these indices."""
        return self.y[index]

    def inputs(self, x: Array) -> Array:
        """Convert samples to float64; integers (tokens) are returned unchanged."""
        return x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64)

    def targets(self, y: Array) -> Array:
        """Return the labels unchanged."""
        return y

    def empty(self, shape: tuple[int, ...]) -> Array:
        """Return an uninitialised float64 array; also used as `recv_buffer`."""
        return np.empty(shape)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        """Return the arrays concatenated along ``axis``."""
        return np.concatenate(parts, axis)

    def take_chunk(self, x: Array, axis: int, part: int, parts: int) -> Array:
        """Return part ``part`` of ``parts`` equal parts of ``x`` along ``axis``, contiguous."""
        return np.ascontiguousarray(np.split(x, parts, axis)[part])

    def attention(self, layer: GroupedAttention, positions: Array) -> NumpyBlockAttention:
        """Return the blockwise attention of a layer for a rank with these sequence
        ``positions``."""
        return NumpyBlockAttention(layer, positions)

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        """Return the segment's output stack; save its tape and the final states of its stateful
        layers for the micro-batch."""
        out, tape = self._forward_segment(segment, values, masks, self.spans[segment])
        self.saved[segment, micro] = tape
        self.final_states.setdefault(micro, {}).update(final_states(tape))
        return out

    def pop_states(self) -> dict[int, Arrays]:
        """Return micro-batch → layer → final states (B, S, H) since the last call, and clear
        them."""
        states, self.final_states = self.final_states, {}
        return states

    def _forward_segment(
        self,
        segment: int,
        values: Values,
        masks: Sequence[Array] = (),
        again: Sequence[LayerSpan] = (),
    ) -> tuple[Values, Tape]:
        """Run the layers of a segment; return the output stack and the tape. ``masks`` are the
        layers' extra inputs; ``again`` divides the layers into spans, some of which are recomputed
        in the backward pass."""
        own, spec = self.segments[segment], self.recipe.spec
        here = token_mask(spec, values[-1]) if own.layers == spec.layers else None
        with self.overflowing():
            context = ForwardContext(masks, here, self.round_value, own.low_precision)
            return forward(own.layers, self.params, values, context, again)

    def loss(self, micro: int, values: Values, labels: Array, masks: Sequence[Array] = ()) -> float:
        """Run the last segment and return the mean loss of the micro-batch; save the tape and the
        loss's gradient with respect to the logits."""
        segment = len(self.segments) - 1
        out, tape = self._forward_segment(segment, values, masks, self.spans[segment])
        with self.overflowing():
            loss, gradient = self.criterion(out[-1], labels)
        self.saved[segment, micro] = (tape, gradient)
        self.final_states.setdefault(micro, {}).update(final_states(tape))
        return loss

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        """Add the gradients of the segment's parameters to `gradient_sums` and free its tape;
        return the gradients of its input stack, None for the model's first segment."""
        return self._backward_segment(segment, self.saved.pop((segment, micro)), gradients)

    def free_activation(self, segment: int, micro: int) -> None:
        """Replace the saved input of the segment's first layer by None, for micro-batch
        ``micro``."""
        self._replace_saved_input(segment, micro, None)

    def restore_activation(self, segment: int, micro: int, x: Array) -> None:
        """Put ``x``, rounded in low precision, back as the saved input of the segment's first
        layer."""
        self._replace_saved_input(
            segment, micro, x if self.round_value is None else self.round_value(x)
        )

    def _replace_saved_input(self, segment: int, micro: int, x: Array | None) -> None:
        """Replace the saved input of the segment's first layer, a `Linear`, by ``x`` on the tape of
        micro-batch ``micro``."""
        tape = self.saved[segment, micro]
        entry: Any = tape[0]
        if isinstance(entry, TapeEntry):
            tape[0] = entry._replace(cache=x)
        else:
            tape[0] = entry._replace(values=(*entry.values[:-1], x))

    def _backward_segment(self, segment: int, tape: Any, gradients: Values) -> Values | None:
        """Run the backward pass along a tape and add the parameters' gradients to `gradient_sums`;
        return the gradients of the input stack, None for the model's first segment."""
        flow: Values | None = None
        with self.overflowing():
            if self.first and segment == 0:
                grads = parameter_gradients(tape, self.params, gradients)
            else:
                flow, grads = backward(tape, self.params, gradients)
            for name, g in grads.items():
                self.gradient_sums[name] += self.downcast(g) if self.rounds_gradients else g
                if self.rounds_gradients:
                    self.gradient_sums[name][...] = self.downcast(self.gradient_sums[name])
        return flow

    def loss_backward(self, micro: int, share: float) -> tuple[None, Values | None]:
        """Run the last segment's backward pass for ``share`` times the loss. Return None, because
        `loss` returned the loss, and the gradients of the input stack."""
        segment = len(self.segments) - 1
        tape, gradient = self.saved.pop((segment, micro))
        return None, self._backward_segment(segment, tape, (share * gradient,))

    def combine_losses(self, losses: Sequence[tuple[float, float]]) -> float:
        """Return the sum of loss · share over (loss, share) pairs."""
        return sum(loss * share for loss, share in losses)

    def saved_activation_bytes(self) -> int:
        """Return the bytes of all saved tapes; arrays that share memory count once."""
        return owned_bytes(self.saved)

    def measure_memory(self, batch: Any = None) -> MemoryUsage:
        """Count the bytes of parameters, gradient sums and optimizer state; ``batch`` is ignored
        and activations are not counted."""
        return MemoryUsage(nbytes(self.params), nbytes(self.gradient_sums), nbytes(self._state))

    # --- evaluation -------------------------------------------------------------------------------

    def infer(self, segment: int, values: Values) -> tuple[Values, list[Array]]:
        """Run a segment in evaluation mode; return its output stack, and the top of the stack after
        every layer. Nothing is saved."""
        out, tape = self._forward_segment(segment, values)
        return out, [entry.output for entry in tape if isinstance(entry, TapeEntry)]

    def evaluate(self, logits: Array, labels: Array) -> tuple[float, Array]:
        """Return the mean loss and the class with the largest logit of each sample or position."""
        return float(self.criterion(logits, labels)[0]), logits.argmax(axis=-1)

    # --- gradients and parameters -----------------------------------------------------------------

    def zero_grad(self) -> None:
        """Set the gradient sums to zero in place and discard all saved tapes."""
        for total in self.gradient_sums.values():
            total[...] = 0
        self.saved.clear()

    def flatten_gradients(self) -> Array:
        """Return a copy of all gradient sums as one float64 vector; empty without parameters."""
        return np.concatenate([np.zeros(0), *(g.ravel() for g in self.gradient_sums.values())])

    def assign_flat_gradients(self, flat: Array) -> None:
        """Overwrite the gradient sums in place by a vector in the order of `flatten_gradients`."""
        start = 0
        for total in self.gradient_sums.values():
            total[...] = flat[start : start + total.size].reshape(total.shape)
            start += total.size

    def gradients(self) -> Arrays:
        """Return float64 copies of the gradient sums by parameter name."""
        return float64_copies(self.gradient_sums)

    def update(self, step: int) -> None:
        """Apply update ``step`` with the gradient sums as they are."""
        self.update_scaled(step, step, 1.0)

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Apply an update with the gradient sums divided by ``scale``; ``step`` determines the
        learning rate, ``made`` is the optimizer's own step count."""
        gradients = self.gradient_sums
        if scale != 1:
            gradients = {name: g * (1 / scale) for name, g in self.gradient_sums.items()}
        self.params, self._state = self.recipe.rule.update(
            self.params, gradients, self._state, made, self.recipe.learning_rate(step)
        )

    # --- low precision ----------------------------------------------------------------------------

    @property
    def precision_policy(self) -> Implementation:
        """Implementation record: float64 values, rounded to the low-precision type."""
        return Implementation("composed", f"float64, rounded to {self.recipe.precision.type}")

    def to_wire(self, x: Array) -> Array:
        """Return ``x`` itself, because rounded values are sent as float64; `from_wire` and `upcast`
        are this function, too."""
        return x

    from_wire, upcast, recv_buffer = to_wire, to_wire, empty

    def downcast(self, x: Array) -> Array:
        """Return ``x`` rounded to the low-precision type, still as float64."""
        assert self.round_value is not None
        with self.overflowing():
            return self.round_value(x)

    def has_finite_gradients(self) -> bool:
        """Return whether all elements of the gradient sums are finite."""
        return all(np.isfinite(g).all() for g in self.gradient_sums.values())

    def weights(self) -> Arrays:
        """Return float64 copies of the parameters by name."""
        return float64_copies(self.params)

    def state(self) -> dict[str, Arrays]:
        """Return state key → parameter name → float64 copy of the optimizer state."""
        return {slot: float64_copies(named) for slot, named in self._state.items()}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Replace parameters and optimizer state by float64 copies; ``step`` is not needed."""
        self.params = float64_copies(weights)
        self._state = {slot: float64_copies(named) for slot, named in state.items()}


class NumpyPlacedStage(NumpyStage, PlacedStage):
    """All stages of a model on logical devices: values that pass between devices are copied."""

    transfers_by = "numpy.ndarray.copy"

    def transfer(self, x: Array, segment: int) -> Array:
        """Return a copy of ``x``, which stands for the transfer to the device of ``segment``."""
        return x.copy()
