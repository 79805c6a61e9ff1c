"""Tensor parallelism: which slice of a layer each rank holds, and where the slices communicate.

A layer split by ``column`` computes some of the outputs on each rank: it needs the whole input, and
its output is split. A layer split by ``row`` takes a split input and computes partial sums. A
column layer followed by a row layer needs one all-reduce in the forward pass (of the row layer's
output) and one in the backward pass (of the gradient of the column layer's input).

With sequence parallelism (`dualml.parallel.split.positions`), activations between a row and a
column layer are sharded by position, and each all-reduce becomes a reduce-scatter and an
all-gather.

Sources: Shoeybi et al. 2019, "Megatron-LM", sec. 3 (its f and g are ``copy`` and ``sum`` here);
Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", fig. 5
(its g and ḡ are ``collect`` and ``scatter`` here).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import GroupedAttention
from dualml.algorithms.model.layers import Attention, Conv2d, Embedding, Linear, Position, RowBias
from dualml.algorithms.model.spec import ModelSpec, canonical_parameter_names
from dualml.algorithms.precision import Stack, layer_precisions, propagate_precision
from dualml.backend.stage import OutputSplit, Segment
from dualml.common.errors import UserError
from dualml.parallel.split.positions import POSITION_SLICES
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.styles import FEATUREWISE_LAYERS


@dataclass(frozen=True)
class ParallelOp:
    """A communication operator on the top of the stack within a tensor-parallel group, with
    conjugate forward and backward communications.

    ``copy`` (Megatron's f): identity forward, all-reduce of the gradients backward. ``sum``
    (Megatron's g): all-reduce forward, identity backward. ``gather``: all-gather along ``axis``
    forward, the local slice of the gradient backward.

    With sequence sharding: ``take`` keeps the local positions of the tokens and has no gradient;
    ``collect`` is an all-gather forward and a reduce-scatter backward; ``scatter`` is the reverse.

    Attributes:
        kind: ``copy``, ``sum``, ``gather``, ``take``, ``collect`` or ``scatter``.
        shape: full shape of the tensor per sample.
        axis: axis of ``gather``, batch axis included.
        lower: whether the tensor is of the low-precision type in mixed-precision training.
        after: layer whose output this is; empty at the beginning of the model.
    """

    kind: str
    shape: tuple[int, ...]
    axis: int = -1
    lower: bool = False
    after: str = ""


@dataclass(frozen=True)
class RingAttentionOp:
    """Ring attention of the local positions in the attention layer ``layer`` with the name
    ``name``: keys and values of all ranks travel around the ring."""

    name: str
    layer: GroupedAttention


Item = Segment | ParallelOp | RingAttentionOp


class StageShard:
    """The part of a stage that one rank of a tensor-parallel group holds, built layer by layer.

    Attributes:
        items: segments and the communication operators between them, in order.
        pieces: canonical parameter name → this rank's shard of it.

    Args:
        spec: the whole model.
        names: layers of the stage.
        styles: layer → ``column``, ``row`` or ``whole``.
        part: this rank's position in the group.
        parts: number of ranks in the group.
        positions: how ranks shard positions, a key of `POSITION_SLICES`; empty: they do not.

    Raises:
        UserError: a layer cannot be split as requested.
    """

    def __init__(
        self,
        spec: ModelSpec,
        names: Sequence[str],
        styles: Mapping[str, str],
        part: int,
        parts: int,
        positions: str = "",
    ) -> None:
        self.part, self.parts, self.styles = part, parts, styles
        self.layers, self.order = dict(spec.layers), [name for name, _ in spec.layers]
        self.outputs, self.whole = spec.shapes(), spec.parameters()
        self.items: list[Item] = []
        self.pieces: dict[str, TensorShard] = {}
        at = self.order.index(names[0])
        self.shape = self.outputs[self.order[at - 1]] if at else spec.input_shape
        self.needs_gradient = at > 0  # whether the gradient of the current tensor is needed
        self.blocks = 0  # blocks of the split axis; 0: the current tensor is whole
        self.ring, self.position_slices = positions == "context", POSITION_SLICES.get(positions)
        self.sequence_sharded = (
            self.position_slices is not None and at > 0
        )  # whether only local positions are here
        #: Which values on the stack are of low precision. Between stages there is one value.
        self.lower: Stack = (layer_precisions(spec.layers)[at].before,)
        self.segment_lower: Stack = self.lower
        self.open_layers: list[tuple[str, Layer]] = []
        self.split: dict[str, OutputSplit] = {}
        for name in names:
            self.add_layer(name, self.layers[name], styles[name])
        if self.blocks:
            self.append_op("gather")
        self.end_segment()
        if names[-1] == self.order[-1] and isinstance(self.items[-1], ParallelOp):
            self.items.append(Segment((), len(self.lower), {}, self.lower))  # the loss

    def add_layer(self, name: str, layer: Layer, style: str) -> None:
        """Append the layer ``name`` in this rank's form to the stage, with the communication that
        it needs before and after; ``style`` is ``column``, ``row`` or ``whole``. Raise `UserError`
        if it cannot be split so here."""
        if style == "row" and not self.blocks and not isinstance(layer, Embedding):
            raise UserError(
                f"split.layers.{name}: a row layer takes the output of a column layer; what comes "
                "here is whole"
            )
        if self.blocks and not self.takes_slices(layer, style):
            self.append_op("gather")
        if self.position_slices is not None:
            self.align_positions(name, layer, style)
        elif style == "column" and self.needs_gradient:
            self.append_op("copy")
        if self.ring and isinstance(layer, GroupedAttention):
            assert self.position_slices is not None
            self.end_segment()
            self.items.append(RingAttentionOp(name, layer))
            self.shape, self.lower = self.outputs[name], propagate_precision(layer, self.lower)
            self.segment_lower, self.split[name] = self.lower, self.position_slices
            return
        first, *after = self.slice_layer(name, layer, style)
        self.append_layer(name, first)
        self.shape = self.outputs[name]
        if style == "column":
            self.blocks = self.output_blocks(name)
        elif self.blocks > 1:
            self.blocks = 1
        elif style == "row":
            self.blocks = 0
            self.append_op("sum" if self.position_slices is None else "scatter", name)
        for later in after:
            self.append_layer(name, later)
        if self.blocks:
            self.split[name] = OutputSplit(feature_axis(self.shape), self.blocks)
        elif self.sequence_sharded:
            assert self.position_slices is not None
            self.split[name] = self.position_slices

    def align_positions(self, name: str, layer: Layer, style: str) -> None:
        """Append the communication that gives a layer all positions or only the local ones, as it
        needs; raise `UserError` if none can."""
        if style == "column" and not self.sequence_sharded:
            raise UserError(
                f"split.sequence: {name} cannot be split by column, which begins with one's own "
                "positions; use row, or leave it whole"
            )
        if style == "column":
            self.append_op("collect")
        elif style == "whole" and not self.blocks:
            if isinstance(layer, GroupedAttention) and not self.ring:
                raise UserError(
                    f"split.sequence: {name} is whole and takes all positions; split the Linear "
                    "before it by column and the one after it by row, or leave out split.layers"
                )
            if not self.sequence_sharded:
                self.append_op("take")

    def takes_slices(self, layer: Layer, style: str) -> bool:
        """Return whether the layer takes the current tensor, which is split, as it is; otherwise it
        must be gathered before the layer."""
        if self.blocks > 1:
            return layer.blocks == self.blocks
        return style == "row" or isinstance(layer, FEATUREWISE_LAYERS)

    def slice_layer(self, name: str, layer: Layer, style: str) -> list[Layer]:
        """Return this rank's part of a layer, and record its parameter shards in `pieces`; the bias
        of a row layer is returned as a second layer, for after the sum."""
        n = self.parts
        if style == "column":
            if isinstance(layer, Embedding):
                self.record_pieces(name, weight=1)
                return [replace(layer, features=layer.features // n)]
            assert isinstance(layer, Linear | Conv2d)
            self.record_pieces(name, self.output_blocks(name), weight=0, bias=0)
            return [replace(layer, outputs=layer.outputs // n)]
        if style == "row":
            if isinstance(layer, Embedding):
                self.record_pieces(name, weight=0)
                words = layer.words // n
                return [replace(layer, words=words, first=layer.first + self.part * words)]
            assert isinstance(layer, Linear | Conv2d)
            self.record_pieces(name, weight=1)
            part = replace(layer, inputs=layer.inputs // n, bias=False)
            return [part, RowBias(layer.outputs)] if layer.bias else [part]
        if isinstance(layer, Position) and self.position_slices is not None:
            self.record_pieces(
                name, self.position_slices.blocks, mirrored=self.position_slices.mirrored, weight=0
            )
            return [replace(layer, length=layer.length // n)]
        self.record_pieces(name)
        if isinstance(layer, Attention) and self.blocks:
            return [replace(layer, heads=layer.heads // n)]
        if isinstance(layer, GroupedAttention) and self.blocks:
            return [replace(layer, heads=layer.heads // n, kv_heads=layer.kv_heads // n)]
        return [layer]

    def record_pieces(
        self, name: str, blocks: int = 1, *, mirrored: bool = False, **axes: int
    ) -> None:
        """Record in `pieces` this rank's shards of a layer's parameters: those in ``axes``
        (``weight``, ``bias``) split along the given axis, the others whole; ``blocks`` and
        ``mirrored`` as in `TensorShard`."""
        for leaf, full in canonical_parameter_names(name, self.layers[name]).items():
            whole = self.whole[full]
            cut = leaf in axes and self.parts > 1
            deal = (self.part, self.parts, blocks, mirrored)
            self.pieces[full] = TensorShard(whole, axes[leaf], *deal) if cut else TensorShard(whole)

    def output_blocks(self, name: str) -> int:
        """Return the number of blocks in which the next layer takes the output of layer ``name``; 1
        for the model's last layer."""
        at = self.order.index(name) + 1
        return self.layers[self.order[at]].blocks if at < len(self.order) else 1

    def append_layer(self, name: str, layer: Layer) -> None:
        """Append a layer, in this rank's form, to the current segment, without communication."""
        self.open_layers.append((name, layer))
        self.lower = propagate_precision(layer, self.lower)
        self.needs_gradient = self.needs_gradient or bool(layer.parameters())

    def append_op(self, kind: str, after: str = "") -> None:
        """Close the current segment and append a communication operator of this kind, after the
        output of the layer ``after``; a group of a single rank gets no operator. Raise `UserError`
        for a ``gather`` where positions are sharded."""
        if kind == "gather" and self.position_slices is not None:
            raise UserError(
                "split.sequence: a layer split by column gives its slices to one split by row, "
                "which gives each rank its positions; change split.layers, or leave it out"
            )
        self.end_segment()
        if self.parts > 1:
            axis, lower = feature_axis(self.shape), self.lower[-1]
            self.items.append(ParallelOp(kind, self.shape, axis, lower, after))
        if kind == "gather":
            self.blocks = 0
        self.sequence_sharded = (
            self.sequence_sharded if kind in ("gather", "copy", "sum") else kind != "collect"
        )

    def end_segment(self) -> None:
        """Close the current segment, if it has layers."""
        if self.open_layers:
            layers, split = tuple(self.open_layers), dict(self.split)
            self.items.append(Segment(layers, len(self.segment_lower), split, self.segment_lower))
        self.open_layers, self.split, self.segment_lower = [], {}, self.lower


def feature_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of features or channels, batch axis included, for a sample of this shape: 2
    for a sequence (T, D), otherwise 1."""
    return 2 if len(shape) == 2 else 1
