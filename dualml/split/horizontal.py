"""Layers split inside: which rank has which slice of a layer, and where the slices must talk.

A layer split by ``column`` has some of the outputs of each rank: it needs the whole input, and its
output is split. One split by ``row`` takes a split input: what comes out are terms of a sum. A
column and a row layer after one another need one all-reduce in the forward pass (of the row
layer's output) and one in the backward pass (of the gradient of the column layer's input).

Source: Shoeybi et al. 2019, "Megatron-LM", sec. 3 (f and g there are ``copy`` and ``sum`` here).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dualml.backend.stage import Segment
from dualml.errors import UserError, nearest
from dualml.model.base import Layer
from dualml.model.decoder import GroupedAttention, SwiGLU
from dualml.model.layers import (
    GELU,
    Attention,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Linear,
    MaxPool2d,
    MeanPool,
    ReLU,
    RowBias,
    Tanh,
)
from dualml.model.spec import ModelSpec, canonical
from dualml.precision import Stack, holding, through
from dualml.split.pieces import Piece

STYLES = ("column", "row", "whole")
#: Layers that treat every feature or channel by itself, or keep those of a slice together.
BY_FEATURE = (ReLU, Tanh, GELU, MaxPool2d, Flatten, Dropout, MeanPool, GroupedAttention)
#: Layers that can be split → what each rank has fewer of, split by ``column`` and by ``row``.
SPLIT = {
    Linear: ("outputs", "inputs"),
    Conv2d: ("outputs", "inputs"),
    Embedding: ("features", "words"),
}


@dataclass(frozen=True)
class ConjugatePair:
    """A conjugate pair of communications among the ranks that hold slices, one forward and one
    backward, of the top of the stack.

    ``copy`` (Megatron's f): nothing forward, the sum over ranks of the gradients backward. ``sum``
    (Megatron's g): the sum over ranks forward, nothing backward. ``gather``: the slices along
    ``axis`` put together forward, one's own slice of the gradient backward.

    Attributes:
        shape: per sample, of the whole of what is there.
        lower: whether it is of the lower type, where the model is trained in one.
    """

    kind: str
    shape: tuple[int, ...]
    axis: int = -1
    lower: bool = False


Item = Segment | ConjugatePair


def styles_of(
    spec: ModelSpec, parts: int, given: Mapping[str, str], stages: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Layer → ``column``, ``row`` or ``whole``: as given, or else in pairs inside each stage; a
    layer without a partner stays whole, unless its stage has no pair at all.

    Raises:
        UserError: an unknown layer or style, sizes that do not divide.
    """
    layers = dict(spec.layers)
    for name, style in given.items():
        if name not in layers:
            hint = nearest(name, layers)
            raise UserError(f"split.layers: {spec.name} has no layer {name!r}{hint}")
        if style not in STYLES:
            raise UserError(f"split.layers.{name}: {style!r} is none of {', '.join(STYLES)}")
        if style != "whole" and type(layers[name]) not in SPLIT:
            kind = type(layers[name]).__name__
            raise UserError(
                f"split.layers.{name}: a {kind} cannot be split inside; Linear, Conv2d and "
                "Embedding can, and attention and SwiGLU follow the Linear before them"
            )
        tied = [other for other, layer in spec.layers if name == layer.holder(other) != other]
        if style != "whole" and tied:
            raise UserError(
                f"split.layers.{name}: its table is the weight of {tied[0]}, too, which takes it "
                "whole; leave it out, or untie them (sizes.tied = false)"
            )
    styles = dict.fromkeys(layers, "whole") | dict(given)
    if parts > 1 and not given:
        for names in stages:
            styles |= pairs(spec, names)
    divide(spec, styles, parts)
    if parts > 1 and all(style == "whole" for style in styles.values()):
        raise UserError(f"tensor = {parts}: no layer of {spec.name} is split; name some in layers")
    return styles


def pairs(spec: ModelSpec, names: Sequence[str]) -> dict[str, str]:
    """Linear and convolution layers two by two, with only what goes feature by feature between."""
    styles: dict[str, str] = {}
    layers, first, lone = dict(spec.layers), "", ""
    for name in names:
        if type(layers[name]) in (Linear, Conv2d):  # and not Tied
            if first:
                styles |= {first: "column", name: "row"}
            first = "" if first else name
            lone = lone or name
        elif not isinstance(layers[name], BY_FEATURE) and layers[name].blocks == 1:
            first = ""
    return styles or ({lone: "column"} if lone else {})


def divide(spec: ModelSpec, styles: Mapping[str, str], parts: int) -> None:
    """Raises `UserError` unless every layer that is split has ``parts`` equal slices."""
    counts: dict[str, tuple[int, str]] = {}
    shapes, before, sliced = spec.shapes(), "whole", False
    for name, layer in spec.layers:
        style = styles[name]
        if style != "whole":
            field = SPLIT[type(layer)][style == "row"]
            word = f"{field[:-1]} channels" if isinstance(layer, Conv2d) else field
            counts[name] = (getattr(layer, field), word)
        elif isinstance(layer, Attention) and before == "column":
            counts[name] = (layer.heads, "heads")
        elif isinstance(layer, GroupedAttention) and sliced:
            counts[name] = (layer.kv_heads, "heads with keys of their own")
        elif isinstance(layer, SwiGLU) and before == "column":
            counts[name] = (shapes[name][-1], "gates")
        before = style
        sliced = style == "column" or (sliced and isinstance(layer, BY_FEATURE))
    for wrong, (count, word) in counts.items():
        if count % parts == 0:
            continue
        every = math.gcd(*(n for n, _ in counts.values()))
        good = [n for n in range(2, every + 1) if every % n == 0][:4]
        instead = f"use tensor = {', '.join(map(str, good))}, or " if good else ""
        raise UserError(
            f"{wrong} has {count} {word}, which {parts} ranks cannot share equally; {instead}name "
            "the layers to split in layers, without it"
        )


class Shard:
    """What one rank of a tensor parallel group has of a stage, built layer by layer.

    Attributes:
        items: segments, and the pairs of communications between them, in order.
        pieces: canonical parameter name → the part of it that this rank has.
    """

    def __init__(
        self,
        spec: ModelSpec,
        names: Sequence[str],
        styles: Mapping[str, str],
        part: int,
        parts: int,
    ) -> None:
        self.part, self.parts, self.styles = part, parts, styles
        self.layers, self.order = dict(spec.layers), [name for name, _ in spec.layers]
        self.outputs, self.whole = spec.shapes(), spec.parameters()
        self.items: list[Item] = []
        self.pieces: dict[str, Piece] = {}
        at = self.order.index(names[0])
        self.shape = self.outputs[self.order[at - 1]] if at else spec.input_shape
        self.needed = at > 0  # whether somebody wants the gradient of what is here
        self.blocks = 0  # of the split axis; 0: what is here is whole
        #: Of the values on the stack: which are of a lower type. Between stages there is one.
        self.lower: Stack = (holding(spec.layers)[at].before,)
        self.begun: Stack = self.lower
        self.open: list[tuple[str, Layer]] = []
        self.split: dict[str, tuple[int, int]] = {}
        for name in names:
            self.add(name, self.layers[name], styles[name])
        if self.blocks:
            self.communicate("gather")
        self.close()
        if names[-1] == self.order[-1] and isinstance(self.items[-1], ConjugatePair):
            self.items.append(Segment((), len(self.lower), {}, self.lower))  # the loss

    def add(self, name: str, layer: Layer, style: str) -> None:
        if style == "row" and not self.blocks and not isinstance(layer, Embedding):
            raise UserError(
                f"split.layers.{name}: a row layer takes the output of a column layer; what comes "
                "here is whole"
            )
        if self.blocks and not self.takes_slices(layer, style):
            self.communicate("gather")
        if style == "column" and self.needed:
            self.communicate("copy")
        first, *after = self.slice(name, layer, style)
        self.put(name, first)
        self.shape = self.outputs[name]
        if style == "column":
            self.blocks = self.blocks_after(name)
        elif self.blocks > 1:
            self.blocks = 1
        elif style == "row":
            self.blocks = 0
            self.communicate("sum")
        for later in after:
            self.put(name, later)
        if self.blocks:
            self.split[name] = (axis_of(self.shape), self.blocks)

    def takes_slices(self, layer: Layer, style: str) -> bool:
        if self.blocks > 1:
            return layer.blocks == self.blocks
        return style == "row" or isinstance(layer, BY_FEATURE)

    def slice(self, name: str, layer: Layer, style: str) -> list[Layer]:
        """The layer as this rank has it; a row layer's bias is added after the sum."""
        n = self.parts
        if style == "column":
            if isinstance(layer, Embedding):
                self.keep(name, weight=1)
                return [replace(layer, features=layer.features // n)]
            assert isinstance(layer, Linear | Conv2d)
            self.keep(name, self.blocks_after(name), weight=0, bias=0)
            return [replace(layer, outputs=layer.outputs // n)]
        if style == "row":
            if isinstance(layer, Embedding):
                self.keep(name, weight=0)
                words = layer.words // n
                return [replace(layer, words=words, first=layer.first + self.part * words)]
            assert isinstance(layer, Linear | Conv2d)
            self.keep(name, weight=1)
            part = replace(layer, inputs=layer.inputs // n, bias=False)
            return [part, RowBias(layer.outputs)] if layer.bias else [part]
        self.keep(name)
        if isinstance(layer, Attention) and self.blocks:
            return [replace(layer, heads=layer.heads // n)]
        if isinstance(layer, GroupedAttention) and self.blocks:
            return [replace(layer, heads=layer.heads // n, kv_heads=layer.kv_heads // n)]
        return [layer]

    def keep(self, name: str, blocks: int = 1, **axes: int) -> None:
        """Parameters of a layer, split along these axes, whole where none is named."""
        for leaf, full in canonical(name, self.layers[name]).items():
            whole = self.whole[full]
            cut = leaf in axes and self.parts > 1
            self.pieces[full] = (
                Piece(whole, axes[leaf], self.part, self.parts, blocks) if cut else Piece(whole)
            )

    def blocks_after(self, name: str) -> int:
        """Of the output of a layer, as the next one takes it."""
        at = self.order.index(name) + 1
        return self.layers[self.order[at]].blocks if at < len(self.order) else 1

    def put(self, name: str, layer: Layer) -> None:
        self.open.append((name, layer))
        self.lower = through(layer, self.lower)
        self.needed = self.needed or bool(layer.parameters())

    def communicate(self, kind: str) -> None:
        """End the segment; the ranks talk."""
        self.close()
        if self.parts > 1:
            axis, lower = axis_of(self.shape), self.lower[-1]
            self.items.append(ConjugatePair(kind, self.shape, axis, lower))
        if kind == "gather":
            self.blocks = 0

    def close(self) -> None:
        if self.open:
            layers, split = tuple(self.open), dict(self.split)
            self.items.append(Segment(layers, len(self.begun), split, self.begun))
        self.open, self.split, self.begun = [], {}, self.lower


def axis_of(shape: tuple[int, ...]) -> int:
    """The axis of features or channels, batch axis included, of a sample's shape."""
    return 2 if len(shape) == 2 else 1
