"""Segments of a split model in MindSpore: compiled forward and backward cells of parts.

The intermediate values of a compiled forward pass are gone when it returns. So the forward cell
also returns the values that its layers' derivatives need (`split_tape.SegmentTape`), and the
backward cell continues from there layer by layer. One cell computes the last segment's loss and
gradients when its backward pass is due: its forward pass only stores the input, whatever is
recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mindspore as ms
import numpy as np

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.algorithms.model.layers import Dropout
from dualml.algorithms.model.recompute import layer_spans
from dualml.algorithms.model.streams import carries_state
from dualml.algorithms.precision import round_to_type
from dualml.backend import (
    ActivationRecomputation,
    ActivationResharding,
    Array,
    Arrays,
    BlockwiseAttention,
    MemoryReport,
    MemoryUsage,
    MixedPrecisionStage,
    Segment,
    StateCarryover,
    TrainingSpec,
    eval_batch_size,
)
from dualml.experiment.data.partial import is_placeholder
from dualml_ms.algorithms.loss_scaling import (
    AllFinite,
    DueRateSchedule,
    ScalarCache,
    UnscaledUpdateFromSums,
)
from dualml_ms.algorithms.memory import nbytes, state_bytes
from dualml_ms.algorithms.model import LOSSES
from dualml_ms.algorithms.model.modules import LowPrecisionCast
from dualml_ms.algorithms.model.network import ModelPart
from dualml_ms.algorithms.optim import load_state, optimizer, state
from dualml_ms.common.compiled import CompiledCell
from dualml_ms.parallel.ring import MindSporeBlockAttention
from dualml_ms.parallel.shard import MindSporeShardable
from dualml_ms.parallel.split_cells import (
    AssignSums,
    Backward,
    Forward,
    JoinSums,
    Loss,
    LossBackward,
    Outputs,
    Score,
    StatefulStageLoss,
    UpdateFromSums,
    ZeroSums,
)
from dualml_ms.parallel.split_tape import SegmentTape

Values = tuple[ms.Tensor, ...]


class MindSporeStage(
    MemoryReport,
    MixedPrecisionStage,
    MindSporeShardable,
    ActivationRecomputation,
    BlockwiseAttention,
    ActivationResharding,
    StateCarryover,
):
    """MindSpore implementation of `dualml.backend.stage.Stage`, the part of a split model on one
    rank.

    A segment is a run of consecutive layers; its inputs and outputs are the values of a stack, as
    in `dualml_ms.algorithms.model.network.ModelPart`, passed as a tuple with the top last.

    Args:
        segments: the layers of this rank, one entry for each of its pipeline stages.
        first: whether segment 0 takes the samples.
        last: whether the last segment computes the loss.

    Attributes:
        sums: canonical name → gradient accumulated over the micro-batches of an update.
        saved_tensors: (segment, micro-batch) → tensors that are saved for its backward pass.
    """

    def __init__(
        self, segments: Sequence[Segment], recipe: TrainingSpec, *, first: bool, last: bool
    ) -> None:
        self.first, self.last_segment = first, len(segments) - 1
        self.precision, self.is_low_precision = recipe.precision.type, recipe.precision.is_low
        drops = [
            sum(isinstance(layer, Dropout) or carries_state(layer) for _, layer in s.layers)
            for s in segments
        ]
        #: Segment → its stateful layers; below, micro-batch → their final states.
        self.stateful = [
            [name for name, layer in s.layers if carries_state(layer)] for s in segments
        ]
        self.final_states = dict[int, dict[str, ms.Tensor]]()
        self.parts, self.parameters = list[ModelPart](), dict[str, ms.Parameter]()
        for segment, n in zip(segments, drops, strict=True):
            given = (segment.depth, n, self.precision, segment.low_precision, self.parameters)
            self.parts.append(ModelPart(segment.layers, *given).set_train())
            self.parts[-1].computes_padding_mask = (
                segment.layers == recipe.spec.layers and recipe.spec.needs_padding_mask
            )
            self.parameters |= self.parts[-1].canonical()
        own = [part.canonical() for part in self.parts]
        tuples = [ms.ParameterTuple(named.values()) for named in own]
        every = ms.ParameterTuple(self.parameters.values())
        gradients = every.clone(prefix="gradient", init="zeros") if every else every
        self.sums = dict(zip(self.parameters, gradients, strict=True))
        sums = [ms.ParameterTuple([self.sums[name] for name in named]) for named in own]
        wanted = [not (first and i == 0) for i in range(len(segments))]
        again = [layer_spans(segment.layers, recipe.recompute) for segment in segments]
        self.tapes = [SegmentTape(*one) for one in zip(self.parts, wanted, again, strict=True)]
        self.forward_cells = [
            CompiledCell(Forward(*one)) for one in zip(self.parts, self.tapes, strict=True)
        ]
        self.backward_cells = [
            CompiledCell(Backward(*one))
            for one in zip(self.parts, sums, self.tapes, wanted, strict=True)
        ]
        criterion = LOSSES[recipe.loss]()
        self.score_cell = CompiledCell(Score(criterion))
        if last:
            self.parts[-1].set_recompute(recipe.recompute)
            kind = StatefulStageLoss if self.stateful[-1] else Loss
            mean = kind(self.parts[-1], criterion, segments[-1].low_precision)
            depth = segments[-1].depth if wanted[-1] else 0
            self.backward_cells[-1] = CompiledCell(LossBackward(mean, depth, tuples[-1], sums[-1]))
        self.output_cells = [CompiledCell(Outputs(part)) for part in self.parts]
        self.layers = [len(segment.layers) for segment in segments]
        self.optimizer: Any = None
        self.clock: DueRateSchedule | None = None
        if self.parameters:
            self._make_update_cells(recipe)
        if not is_placeholder(recipe.x):
            self.x = self._as_int32(recipe.x)
        if not is_placeholder(recipe.y):
            self.y = recipe.y.astype(np.int32)
        self.saved_tensors: dict[tuple[int, int], Any] = {}
        self.scalar = ScalarCache()
        self.attentions = dict[tuple[Any, ...], MindSporeBlockAttention]()
        self.counts_saved_bytes, self.min_eval_batch = False, eval_batch_size(recipe.y)

    def _make_update_cells(self, recipe: TrainingSpec) -> None:
        """Make the optimizer, and the compiled cells that test, apply, clear, join and overwrite
        the gradient sums."""
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.learning_rates()
        if recipe.precision.loss_scale is not None and not recipe.schedule.constant:
            rates = self.clock = DueRateSchedule(rates)
        self.optimizer = optimizer(recipe.rule, list(self.parameters.values()), rates)
        sums = ms.ParameterTuple(self.sums.values())
        self.all_finite = CompiledCell(AllFinite(*sums))
        self.apply_scaled = CompiledCell(UnscaledUpdateFromSums(self.optimizer, sums))
        self.apply, self.zero_sums = (
            CompiledCell(UpdateFromSums(self.optimizer, sums)),
            CompiledCell(ZeroSums(sums)),
        )
        self.join_sums, self.assign_sums = (
            CompiledCell(JoinSums(sums)),
            CompiledCell(AssignSums(sums)),
        )

    # --- data -------------------------------------------------------------------------------------

    @staticmethod
    def _as_int32(x: Array) -> Array:
        """Return integers as int32, and other arrays unchanged."""
        return x.astype(np.int32) if np.issubdtype(x.dtype, np.integer) else x

    def samples(self, index: Array) -> ms.Tensor:
        """Return the training samples with these indices as a tensor; tokens are int32."""
        return ms.Tensor.from_numpy(self.x[index])

    def labels(self, index: Array) -> ms.Tensor:
        """Return the int32 labels of the training samples with these indices as a tensor."""
        return ms.Tensor.from_numpy(self.y[index])

    def inputs(self, x: Array) -> ms.Tensor:
        """Make a contiguous tensor of samples ``x`` from outside the training set; integers become
        int32."""
        return ms.Tensor.from_numpy(self._as_int32(np.ascontiguousarray(x)))

    def targets(self, y: Array) -> ms.Tensor:
        """Make an int32 tensor of labels ``y`` from outside the training set."""
        return ms.Tensor.from_numpy(y.astype(np.int32))

    def empty(self, shape: tuple[int, ...]) -> ms.Tensor:
        """Return an uninitialized float32 tensor of this shape, as a buffer for a message."""
        return ms.Tensor.from_numpy(np.empty(shape, np.float32))

    def concat(self, parts: Sequence[ms.Tensor], axis: int) -> ms.Tensor:
        """Concatenate tensors along ``axis`` with NumPy, into a new tensor."""
        return ms.Tensor.from_numpy(np.concatenate([p.asnumpy() for p in parts], axis))

    def take_chunk(self, x: ms.Tensor, axis: int, part: int, parts: int) -> ms.Tensor:
        """Return part number ``part``, from 0, of ``parts`` equal parts of ``x`` along ``axis``,
        contiguous; it may share the memory of ``x``. Raise ValueError if they cannot be equal."""
        piece = np.split(x.asnumpy(), parts, axis)[part]
        return ms.Tensor.from_numpy(np.ascontiguousarray(piece))

    def attention(self, layer: GroupedAttention, positions: Array) -> MindSporeBlockAttention:
        """Return the blockwise attention of a layer for a rank that holds the ``positions`` of a
        text; equal layers with equal positions get the same object."""
        key = layer, tuple(positions)
        if key not in self.attentions:
            self.attentions[key] = MindSporeBlockAttention(layer, positions)
        return self.attentions[key]

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        """Run the compiled forward pass of segment number ``segment`` on micro-batch number
        ``micro``, whose stack before the segment is ``values``; return the stack after it. Save
        what `backward` needs, and final states for `pop_states`.

        Args:
            masks: Dropout masks and initial states of the segment, in layer order.
        """
        given = tuple(map(ms.Tensor.from_numpy, masks))
        outputs, tape = self.forward_cells[segment](*values, *given), self.tapes[segment]
        outputs = self._pop_final_states(segment, micro, outputs)
        inner = sum(0 < at < self.layers[segment] for at in tape.kept)
        stack, inside = outputs[: len(outputs) - inner], outputs[len(outputs) - inner :]
        begin = [values[at - 1] for at in tape.kept if at <= 0]
        end = stack[-1:] if self.layers[segment] in tape.kept else ()
        self.saved_tensors[segment, micro] = (*begin, *inside, *end, *given)
        return stack

    def _pop_final_states(self, segment: int, micro: int, outputs: Values) -> Values:
        """Store the final states at the end of a cell's ``outputs`` for `pop_states`; return the
        others, or all of them if the segment has no stateful layer or was given no initial
        states."""
        names = self.stateful[segment]
        if not names or len(outputs) <= len(names):  # no initial states were given
            return outputs
        states = dict(zip(names, outputs[-len(names) :], strict=True))
        self.final_states.setdefault(micro, {}).update(states)
        return outputs[: -len(names)]

    def pop_states(self) -> dict[int, Arrays]:
        """Return micro-batch → layer → final state, an array (B, S, H), of all forward passes since
        the last call, and forget them."""
        every, self.final_states = self.final_states, {}
        return {
            micro: {name: state.asnumpy() for name, state in states.items()}
            for micro, states in every.items()
        }

    def loss(
        self, micro: int, values: Values, labels: ms.Tensor, masks: Sequence[Array] = ()
    ) -> None:
        """Save the last segment's input, masks and labels for `loss_backward`, which computes the
        loss; return None."""
        self.saved_tensors[self.last_segment, micro] = (
            *values,
            *map(ms.Tensor.from_numpy, masks),
            labels,
        )

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        """Run the backward pass of a segment and micro-batch from ``gradients``, those of the stack
        after it: add its parameters' gradients to the sums and free what `forward` saved. Return
        the gradients of the stack before it, or None for the segment that takes the samples."""
        flow = self.backward_cells[segment](*self.saved_tensors.pop((segment, micro)), *gradients)
        return None if self.first and segment == 0 else flow

    def free_activation(self, segment: int, micro: int) -> None:
        """Replace the segment's input (the top of its stack) that is saved for a micro-batch by
        None, to be set by `restore_activation` before the backward pass."""
        self.restore_activation(segment, micro, None)

    def restore_activation(self, segment: int, micro: int, x: ms.Tensor | None) -> None:
        """Put ``x`` in place of the segment's input (the top of its stack) that is saved for a
        micro-batch; None frees it."""
        kept, at = self.saved_tensors[segment, micro], self.tapes[segment].kept.index(0)
        self.saved_tensors[segment, micro] = (*kept[:at], x, *kept[at + 1 :])

    def loss_backward(self, micro: int, share: float) -> tuple[ms.Tensor, Values | None]:
        """Compute the last segment's mean loss of a micro-batch saved by `loss`, and add the
        gradients of ``share`` times it to the sums. Return the loss, not times ``share``, and the
        gradients of the stack before the segment, or None if it takes the samples."""
        found = self.backward_cells[self.last_segment](
            *self.saved_tensors.pop((self.last_segment, micro)), self.scalar(share)
        )
        loss, *flow = self._pop_final_states(self.last_segment, micro, found)
        return loss, None if self.first and self.last_segment == 0 else tuple(flow)

    def combine_losses(self, losses: Sequence[tuple[ms.Tensor, float]]) -> list[Any]:
        """Return the pairs (loss, share of the batch) as a list, not yet added up:
        `MindSporeBackend.materialize_losses` does that."""
        return list(losses)

    def saved_activation_bytes(self) -> int:
        """Return the bytes of the tensors saved for backward passes, each tensor counted once. They
        omit what compiled graphs allocate."""
        kept = {
            id(t): t.nbytes for held in self.saved_tensors.values() for t in held if t is not None
        }
        return sum(kept.values())

    def measure_memory(self, batch: Any = None) -> MemoryUsage:
        """Return the bytes of weights, gradient sums and optimizer state; ``batch`` is ignored,
        activations are not counted."""
        own, sums = self.parameters.values(), self.sums.values()
        return MemoryUsage(nbytes(own), nbytes(sums), state_bytes(self.optimizer))

    # --- a lower precision ------------------------------------------------------------------------

    @property
    def precision_policy(self) -> Implementation:
        """Storage and arithmetic of the low-precision numbers; not defined for float32."""
        return LowPrecisionCast(self.precision).precision_policy

    def to_wire(self, x: ms.Tensor) -> ms.Tensor:
        """Return a low-precision tensor as float16 to send: float16 unchanged, bfloat16 numbers,
        which are stored in float32, as the upper half of their bits."""
        if x.dtype == ms.float16:
            return x
        bits = np.ascontiguousarray(x.asnumpy()).view(np.uint32) >> 16
        return ms.Tensor.from_numpy(bits.astype(np.uint16).view(np.float16))

    def from_wire(self, x: ms.Tensor) -> ms.Tensor:
        """Return a received float16 tensor in its storage form: unchanged for fp16, for bf16 a
        float32 tensor with these bits as its upper half."""
        if self.precision == "fp16":
            return x
        bits = x.asnumpy().view(np.uint16).astype(np.uint32) << 16
        return ms.Tensor.from_numpy(bits.view(np.float32))

    def recv_buffer(self, shape: tuple[int, ...]) -> ms.Tensor:
        """Return an uninitialized float16 tensor of this shape, to receive a `to_wire` message
        into."""
        return ms.Tensor.from_numpy(np.empty(shape, np.float16))

    def upcast(self, x: ms.Tensor) -> ms.Tensor:
        """Return a float32 copy of a low-precision tensor."""
        return ms.Tensor.from_numpy(x.asnumpy().astype(np.float32))

    def downcast(self, x: ms.Tensor) -> ms.Tensor:
        """Round ``x`` to the low-precision type; return it in float16 for fp16, in float32 for
        bf16."""
        kind = np.float16 if self.precision == "fp16" else np.float32
        return ms.Tensor.from_numpy(round_to_type(x.asnumpy(), self.precision).astype(kind))

    def has_finite_gradients(self) -> bool:
        """Return whether all elements of the gradient sums are finite; True without parameters."""
        return not self.parameters or bool(self.all_finite().asnumpy())

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Make update ``step`` (from 1) with the gradient sums divided by the loss scale ``scale``,
        if there are parameters; ``made`` is ignored, because the optimizer counts its own steps."""
        if self.clock is not None:
            self.clock.due.set_data(ms.Tensor(step - 1, ms.int32))
        if self.parameters:
            self.apply_scaled(self.scalar(1 / scale))

    # --- evaluation -------------------------------------------------------------------------------

    def infer(self, segment: int, values: Values) -> tuple[Values, list[ms.Tensor]]:
        """Run a segment in evaluation mode on the stack ``values`` before it, without saving
        anything; return the stack after it, and a list of the top of the stack after each of its
        layers."""
        outputs = self.output_cells[segment](*values)
        depth = len(outputs) - self.layers[segment]
        return tuple(outputs[:depth]), list(outputs[depth:])

    def evaluate(self, logits: ms.Tensor, labels: ms.Tensor) -> tuple[float, Array]:
        """Return the mean loss and the predicted classes for ``labels``. ``logits`` may have more
        rows, of a batch filled up to a fixed size: those after the first ``len(labels)`` are not
        counted."""
        y = labels.asnumpy()
        filled = ms.Tensor.from_numpy(np.resize(y, (len(logits), *y.shape[1:])))
        losses, predicted = self.score_cell(logits, filled)
        return float(losses.asnumpy()[: y.size].mean(dtype=float)), predicted.asnumpy()[: len(y)]

    # --- gradients and parameters -----------------------------------------------------------------

    def zero_grad(self) -> None:
        """Set the gradient sums to zero in place, and free all saved activations."""
        self.saved_tensors.clear()
        if self.parameters:
            self.zero_sums()

    def flatten_gradients(self) -> ms.Tensor:
        """Return the gradient sums as one new 1-D float32 tensor; empty without parameters."""
        return self.join_sums() if self.parameters else ms.Tensor(np.zeros(0, np.float32))

    def assign_flat_gradients(self, flat: ms.Tensor) -> None:
        """Overwrite the gradient sums with ``flat``, in the layout of `flatten_gradients`."""
        if self.parameters:
            self.assign_sums(flat)

    def gradients(self) -> Arrays:
        """Return canonical name → copy of each gradient sum."""
        return {name: p.asnumpy().copy() for name, p in self.sums.items()}

    def update(self, step: int) -> None:
        """Make one update with the gradient sums, if there are parameters; ``step`` is ignored,
        because the optimizer counts its own steps."""
        if self.parameters:
            self.apply()

    def weights(self) -> Arrays:
        """Return canonical name → copy of each parameter of this stage."""
        return {name: p.asnumpy().copy() for name, p in self.parameters.items()}

    def state(self) -> dict[str, Arrays]:
        """Return copies of the optimizer state: state name → canonical name → array; empty without
        parameters."""
        return state(self.optimizer, list(self.parameters)) if self.parameters else {}

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Set the parameters to ``weights`` (canonical name → array) and the optimizer to its
        ``state`` after update ``step``; 0 is a fresh one, whatever ``state`` is."""
        for name, parameter in self.parameters.items():
            parameter.set_data(ms.Tensor(weights[name], parameter.dtype))
        if self.parameters:
            load_state(self.optimizer, state, step, list(self.parameters))
