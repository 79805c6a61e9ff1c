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

from dualml.backend import (
    Array,
    Arrays,
    Attending,
    Carrying,
    Memory,
    MixedStage,
    Recipe,
    Recomputing,
    Regathering,
    Segment,
    Weighable,
    at_once,
)
from dualml.communicator import How
from dualml.data.partial import is_left_out
from dualml.model.decoder import GroupedAttention
from dualml.model.layers import Dropout
from dualml.model.recompute import stretches
from dualml.model.streams import carries
from dualml.precision import rounded
from dualml_ms.compiled import Compiled
from dualml_ms.memory import nbytes, state_bytes
from dualml_ms.model import LOSSES
from dualml_ms.model.modules import Lower
from dualml_ms.model.network import Part
from dualml_ms.optim import load_state, optimizer, state
from dualml_ms.ring import MindSporeBlockAttention
from dualml_ms.scaled import AllFinite, Clocked, Numbers, UpdateFrom
from dualml_ms.shard import MindSporeShardable
from dualml_ms.split_cells import (
    Backward,
    Divided,
    EndingLoss,
    Forward,
    Joined,
    Last,
    Loss,
    Outputs,
    Score,
    Update,
    Zero,
)
from dualml_ms.split_tape import Tape

Values = tuple[ms.Tensor, ...]


class MindSporeStage(
    Weighable, MixedStage, MindSporeShardable, Recomputing, Attending, Regathering, Carrying
):
    """MindSpore implementation of `dualml.backend.stage.Stage`.

    Args:
        segments: the layers of this rank, stage by stage.
        first: whether segment 0 takes the samples.
        last: whether the last segment computes the loss.
    """

    def __init__(
        self, segments: Sequence[Segment], recipe: Recipe, *, first: bool, last: bool
    ) -> None:
        self.first, self.end = first, len(segments) - 1
        self.precision, self.lower = recipe.precision.type, recipe.precision.lower
        drops = [
            sum(isinstance(layer, Dropout) or carries(layer) for _, layer in s.layers)
            for s in segments
        ]
        #: Segment → its stateful layers; below, micro-batch → their final states.
        self.stateful = [[name for name, layer in s.layers if carries(layer)] for s in segments]
        self.ended = dict[int, dict[str, ms.Tensor]]()
        self.parts, self.parameters = list[Part](), dict[str, ms.Parameter]()
        for segment, n in zip(segments, drops, strict=True):
            given = (segment.depth, n, self.precision, segment.lower, self.parameters)
            self.parts.append(Part(segment.layers, *given).set_train())
            self.parts[-1].seeks = segment.layers == recipe.spec.layers and recipe.spec.padded
            self.parameters |= self.parts[-1].canonical()
        own = [part.canonical() for part in self.parts]
        tuples = [ms.ParameterTuple(named.values()) for named in own]
        every = ms.ParameterTuple(self.parameters.values())
        gradients = every.clone(prefix="gradient", init="zeros") if every else every
        self.sums = dict(zip(self.parameters, gradients, strict=True))
        sums = [ms.ParameterTuple([self.sums[name] for name in named]) for named in own]
        wanted = [not (first and i == 0) for i in range(len(segments))]
        again = [stretches(segment.layers, recipe.recompute) for segment in segments]
        self.tapes = [Tape(*one) for one in zip(self.parts, wanted, again, strict=True)]
        self.heads = [Compiled(Forward(*one)) for one in zip(self.parts, self.tapes, strict=True)]
        self.back = [
            Compiled(Backward(*one))
            for one in zip(self.parts, sums, self.tapes, wanted, strict=True)
        ]
        criterion = LOSSES[recipe.loss]()
        self.points = Compiled(Score(criterion))
        if last:
            self.parts[-1].compute_again(recipe.recompute)
            kind = EndingLoss if self.stateful[-1] else Loss
            mean = kind(self.parts[-1], criterion, segments[-1].lower)
            depth = segments[-1].depth if wanted[-1] else 0
            self.back[-1] = Compiled(Last(mean, depth, tuples[-1], sums[-1]))
        self.looks = [Compiled(Outputs(part)) for part in self.parts]
        self.layers = [len(segment.layers) for segment in segments]
        self.optimizer: Any = None
        self.clock: Clocked | None = None
        if self.parameters:
            self._updates(recipe)
        if not is_left_out(recipe.x):
            self.x = self._tokens(recipe.x)
        if not is_left_out(recipe.y):
            self.y = recipe.y.astype(np.int32)
        self.kept: dict[tuple[int, int], Any] = {}
        self.number = Numbers()
        self.attentions = dict[tuple[Any, ...], MindSporeBlockAttention]()
        self.measuring, self.infers = False, at_once(recipe.y)

    def _updates(self, recipe: Recipe) -> None:
        """Make the optimizer, and the cells that update, clear and copy the gradient sums."""
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.rates()
        if recipe.precision.loss_scale is not None and not recipe.schedule.constant:
            rates = self.clock = Clocked(rates)
        self.optimizer = optimizer(recipe.rule, list(self.parameters.values()), rates)
        sums = ms.ParameterTuple(self.sums.values())
        self.all_finite = Compiled(AllFinite(*sums))
        self.apply_scaled = Compiled(UpdateFrom(self.optimizer, sums))
        self.apply, self.clear = Compiled(Update(self.optimizer, sums)), Compiled(Zero(sums))
        self.joined, self.divided = Compiled(Joined(sums)), Compiled(Divided(sums))

    # --- data -------------------------------------------------------------------------------------

    @staticmethod
    def _tokens(x: Array) -> Array:
        """Return integers as int32, and other arrays unchanged."""
        return x.astype(np.int32) if np.issubdtype(x.dtype, np.integer) else x

    def samples(self, index: Array) -> ms.Tensor:
        return ms.Tensor.from_numpy(self.x[index])

    def labels(self, index: Array) -> ms.Tensor:
        return ms.Tensor.from_numpy(self.y[index])

    def inputs(self, x: Array) -> ms.Tensor:
        return ms.Tensor.from_numpy(self._tokens(np.ascontiguousarray(x)))

    def targets(self, y: Array) -> ms.Tensor:
        return ms.Tensor.from_numpy(y.astype(np.int32))

    def empty(self, shape: tuple[int, ...]) -> ms.Tensor:
        return ms.Tensor.from_numpy(np.empty(shape, np.float32))

    def concat(self, parts: Sequence[ms.Tensor], axis: int) -> ms.Tensor:
        return ms.Tensor.from_numpy(np.concatenate([p.asnumpy() for p in parts], axis))

    def cut(self, x: ms.Tensor, axis: int, part: int, parts: int) -> ms.Tensor:
        piece = np.split(x.asnumpy(), parts, axis)[part]
        return ms.Tensor.from_numpy(np.ascontiguousarray(piece))

    def attention(self, layer: GroupedAttention, places: Array) -> MindSporeBlockAttention:
        """Return the blockwise attention of a layer; equal layers share the compiled cells."""
        key = layer, tuple(places)
        if key not in self.attentions:
            self.attentions[key] = MindSporeBlockAttention(layer, places)
        return self.attentions[key]

    # --- one micro-batch --------------------------------------------------------------------------

    def forward(
        self, segment: int, micro: int, values: Values, masks: Sequence[Array] = ()
    ) -> Values:
        given = tuple(map(ms.Tensor.from_numpy, masks))
        outputs, tape = self.heads[segment](*values, *given), self.tapes[segment]
        outputs = self._ended(segment, micro, outputs)
        inner = sum(0 < at < self.layers[segment] for at in tape.kept)
        stack, inside = outputs[: len(outputs) - inner], outputs[len(outputs) - inner :]
        begin = [values[at - 1] for at in tape.kept if at <= 0]
        end = stack[-1:] if self.layers[segment] in tape.kept else ()
        self.kept[segment, micro] = (*begin, *inside, *end, *given)
        return stack

    def _ended(self, segment: int, micro: int, outputs: Values) -> Values:
        """Store the final states among a cell's outputs; return the other outputs."""
        names = self.stateful[segment]
        if not names or len(outputs) <= len(names):  # no initial states were given
            return outputs
        states = dict(zip(names, outputs[-len(names) :], strict=True))
        self.ended.setdefault(micro, {}).update(states)
        return outputs[: -len(names)]

    def states(self) -> dict[int, Arrays]:
        every, self.ended = self.ended, {}
        return {
            micro: {name: state.asnumpy() for name, state in states.items()}
            for micro, states in every.items()
        }

    def loss(
        self, micro: int, values: Values, labels: ms.Tensor, masks: Sequence[Array] = ()
    ) -> None:
        self.kept[self.end, micro] = (*values, *map(ms.Tensor.from_numpy, masks), labels)

    def backward(self, segment: int, micro: int, gradients: Values) -> Values | None:
        flow = self.back[segment](*self.kept.pop((segment, micro)), *gradients)
        return None if self.first and segment == 0 else flow

    def forget(self, segment: int, micro: int) -> None:
        self.remember(segment, micro, None)

    def remember(self, segment: int, micro: int, x: ms.Tensor | None) -> None:
        kept, at = self.kept[segment, micro], self.tapes[segment].kept.index(0)
        self.kept[segment, micro] = (*kept[:at], x, *kept[at + 1 :])

    def loss_backward(self, micro: int, share: float) -> tuple[ms.Tensor, Values | None]:
        found = self.back[self.end](*self.kept.pop((self.end, micro)), self.number(share))
        loss, *flow = self._ended(self.end, micro, found)
        return loss, None if self.first and self.end == 0 else tuple(flow)

    def lazy(self, losses: Sequence[tuple[ms.Tensor, float]]) -> list[Any]:
        return list(losses)

    def held(self) -> int:
        kept = {id(t): t.nbytes for held in self.kept.values() for t in held if t is not None}
        return sum(kept.values())

    def memory(self, batch: Any = None) -> Memory:
        own, sums = self.parameters.values(), self.sums.values()
        return Memory(nbytes(own), nbytes(sums), state_bytes(self.optimizer))

    # --- a lower precision ------------------------------------------------------------------------

    @property
    def how(self) -> How:
        return Lower(self.precision).how

    def packed(self, x: ms.Tensor) -> ms.Tensor:
        """Pack bfloat16 numbers that are stored in float32: their upper half has all bits."""
        if x.dtype == ms.float16:
            return x
        bits = np.ascontiguousarray(x.asnumpy()).view(np.uint32) >> 16
        return ms.Tensor.from_numpy(bits.astype(np.uint16).view(np.float16))

    def unpacked(self, x: ms.Tensor) -> ms.Tensor:
        if self.precision == "fp16":
            return x
        bits = x.asnumpy().view(np.uint16).astype(np.uint32) << 16
        return ms.Tensor.from_numpy(bits.view(np.float32))

    def to_receive(self, shape: tuple[int, ...]) -> ms.Tensor:
        return ms.Tensor.from_numpy(np.empty(shape, np.float16))

    def widened(self, x: ms.Tensor) -> ms.Tensor:
        return ms.Tensor.from_numpy(x.asnumpy().astype(np.float32))

    def rounded(self, x: ms.Tensor) -> ms.Tensor:
        kind = np.float16 if self.precision == "fp16" else np.float32
        return ms.Tensor.from_numpy(rounded(x.asnumpy(), self.precision).astype(kind))

    def finite(self) -> bool:
        return not self.parameters or bool(self.all_finite().asnumpy())

    def update_scaled(self, step: int, made: int, scale: float) -> None:
        """Unscale the gradients and update; ``made`` is ignored, because the optimizer counts its
        own steps."""
        if self.clock is not None:
            self.clock.due.set_data(ms.Tensor(step - 1, ms.int32))
        if self.parameters:
            self.apply_scaled(self.number(1 / scale))

    # --- evaluation -------------------------------------------------------------------------------

    def infer(self, segment: int, values: Values) -> tuple[Values, list[ms.Tensor]]:
        outputs = self.looks[segment](*values)
        depth = len(outputs) - self.layers[segment]
        return tuple(outputs[:depth]), list(outputs[depth:])

    def score(self, logits: ms.Tensor, labels: ms.Tensor) -> tuple[float, Array]:
        y = labels.asnumpy()
        filled = ms.Tensor.from_numpy(np.resize(y, (len(logits), *y.shape[1:])))
        losses, predicted = self.points(logits, filled)
        return float(losses.asnumpy()[: y.size].mean(dtype=float)), predicted.asnumpy()[: len(y)]

    # --- gradients and parameters -----------------------------------------------------------------

    def zero(self) -> None:
        self.kept.clear()
        if self.parameters:
            self.clear()

    def flat(self) -> ms.Tensor:
        return self.joined() if self.parameters else ms.Tensor(np.zeros(0, np.float32))

    def assign_flat(self, flat: ms.Tensor) -> None:
        if self.parameters:
            self.divided(flat)

    def gradients(self) -> Arrays:
        return {name: p.asnumpy().copy() for name, p in self.sums.items()}

    def update(self, step: int) -> None:
        if self.parameters:
            self.apply()

    def weights(self) -> Arrays:
        return {name: p.asnumpy().copy() for name, p in self.parameters.items()}

    def state(self) -> dict[str, Arrays]:
        return state(self.optimizer, list(self.parameters)) if self.parameters else {}

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        for name, parameter in self.parameters.items():
            parameter.set_data(ms.Tensor(weights[name], parameter.dtype))
        if self.parameters:
            load_state(self.optimizer, state, step, list(self.parameters))
