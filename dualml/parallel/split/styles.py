"""Parallel styles of layers: split by ``column``, by ``row``, or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dualml.algorithms.model.decoder import GroupedAttention, SwiGLU
from dualml.algorithms.model.layers import (
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
    Tanh,
)
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError, did_you_mean

STYLES = ("column", "row", "whole")
#: Layers that process every feature or channel separately, or keep those of a slice together.
FEATUREWISE_LAYERS = (ReLU, Tanh, GELU, MaxPool2d, Flatten, Dropout, MeanPool, GroupedAttention)
#: Splittable layers → the field that is divided, for a split by ``column`` and by ``row``.
SPLIT = {
    Linear: ("outputs", "inputs"),
    Conv2d: ("outputs", "inputs"),
    Embedding: ("features", "words"),
}


def choose_styles(
    spec: ModelSpec, parts: int, given: Mapping[str, str], stages: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Return the style of every layer, ``column``, ``row`` or ``whole``. If any are ``given``, the
    others are whole; if none, layers are split in pairs within each stage (`pair_layers`), where a
    layer without a partner stays whole, unless its stage has no pair at all. For one rank
    (``parts`` 1) nothing is split by itself.

    Raises:
        UserError: an unknown layer or style, a layer that cannot be split, sizes that the ranks do
            not divide, or no split layer for several ranks.
    """
    layers = dict(spec.layers)
    for name, style in given.items():
        if name not in layers:
            hint = did_you_mean(name, layers)
            raise UserError(f"split.layers: {spec.name} has no layer {name!r}{hint}")
        if style not in STYLES:
            hint = did_you_mean(style, STYLES, fallback="")
            raise UserError(f"split.layers.{name}: {style!r} is none of {', '.join(STYLES)}{hint}")
        if style != "whole" and type(layers[name]) not in SPLIT:
            kind = type(layers[name]).__name__
            raise UserError(
                f"split.layers.{name}: a {kind} cannot be split inside; Linear, Conv2d and "
                "Embedding can, and attention and SwiGLU follow the Linear before them"
            )
        tied = [
            other for other, layer in spec.layers if name == layer.parameter_owner(other) != other
        ]
        if style != "whole" and tied:
            raise UserError(
                f"split.layers.{name}: its table is the weight of {tied[0]}, too, which takes it "
                "whole; leave it out, or untie them (tied = false)"
            )
    styles = dict.fromkeys(layers, "whole") | dict(given)
    if parts > 1 and not given:
        for names in stages:
            styles |= pair_layers(spec, names)
    check_divisible(spec, styles, parts)
    if parts > 1 and all(style == "whole" for style in styles.values()):
        raise UserError(f"tensor = {parts}: no layer of {spec.name} is split; name some in layers")
    return styles


def pair_layers(spec: ModelSpec, names: Sequence[str]) -> dict[str, str]:
    """Return ``column`` and ``row`` for pairs of linear or convolution layers among ``names``, the
    layers of a stage, that have only feature-wise layers, attention or SwiGLU between them; without
    any pair ``column`` for the first such layer, if there is one. Other layers have no entry."""
    styles: dict[str, str] = {}
    layers, first, lone = dict(spec.layers), "", ""
    for name in names:
        if type(layers[name]) in (Linear, Conv2d):  # and not Tied
            if first:
                styles |= {first: "column", name: "row"}
            first = "" if first else name
            lone = lone or name
        elif not isinstance(layers[name], FEATUREWISE_LAYERS) and layers[name].blocks == 1:
            first = ""
    return styles or ({lone: "column"} if lone else {})


def check_divisible(spec: ModelSpec, styles: Mapping[str, str], parts: int) -> None:
    """Raise `UserError` unless the sizes of every layer that ``styles`` splits divide into
    ``parts`` equal slices, as well as the heads or gates of attention and SwiGLU behind it."""
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
        sliced = style == "column" or (sliced and isinstance(layer, FEATUREWISE_LAYERS))
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
