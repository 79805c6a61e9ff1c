"""Bytes that the reference's tape holds of each layer, for `dualml.model.saved_activations`: every
layer's output, and what its backward pass needs besides. Numbers are float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dualml.model.base import Layer, Shape
from dualml.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.model.kept import Keeps, mask_bytes
from dualml.model.layers import (
    GELU,
    GRU,
    LSTM,
    RNN,
    Attention,
    Branch,
    Conv2d,
    Dropout,
    Embedding,
    First,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Merge,
    Position,
    ReLU,
    Rows,
    Tanh,
)

WIDTH = 8


def padded(layer: Conv2d, before: Shape, after: Shape) -> int:
    """Return the bytes of a convolution's padded input."""
    channels, height, width = before
    return WIDTH * channels * (height + 2 * layer.padding) * (width + 2 * layer.padding)


def gates(layer: LSTM, before: Shape, after: Shape) -> int:
    """Return the bytes of an LSTM's i, f, g, o, tanh c and h of every step, c of all but the last,
    and both zero states."""
    return WIDTH * layer.hidden * (7 * after[0] + 1)


def gated(layer: GRU, before: Shape, after: Shape) -> int:
    """Return the bytes of a GRU's r, z, n, the term that r multiplies and h of every step, and the
    zero state."""
    return WIDTH * layer.hidden * (5 * after[0] + 1)


def hidden(layer: RNN, before: Shape, after: Shape) -> int:
    """Return the bytes of an RNN's h of every step, and of the zero state."""
    return WIDTH * layer.hidden * (after[0] + 1)


def softmax(layer: Attention, before: Shape, after: Shape) -> int:
    """Return the bytes of the attention weights of all heads."""
    return WIDTH * layer.heads * before[0] ** 2


def turned(layer: GroupedAttention, before: Shape, after: Shape) -> int:
    """Return the bytes of the softmax, and of queries and keys where they are rotated or copied
    next to one another."""
    queries = layer.length * layer.heads * layer.width
    keys = layer.length * layer.kv_heads * layer.width if layer.base else 0
    copied = queries + keys if layer.base else queries if layer.each > 1 else 0
    return WIDTH * (layer.heads * layer.length**2 + copied)


def shares(layer: MeanPool, before: Shape, after: Shape) -> int:
    """Return the bytes of each position's share of a masked mean."""
    return WIDTH * before[0] if layer.masked else 0


#: Layer → values that the reference saves for its backward pass.
KEPT: Mapping[type[Layer], Keeps] = {
    Linear: Keeps(taken=True, given=True),
    Conv2d: Keeps(given=True, own=padded),
    MaxPool2d: Keeps(taken=True, given=True),
    ReLU: Keeps(given=True, own=lambda layer, before, after: math.prod(after)),
    Tanh: Keeps(given=True),
    GELU: Keeps(taken=True, given=True, own=lambda layer, before, after: WIDTH * math.prod(after)),
    Flatten: Keeps(given=True, view=True),
    # Row of every token, and whether the token has a row.
    Embedding: Keeps(given=True, own=lambda layer, before, after: 9 * math.prod(before)),
    LSTM: Keeps(taken=True, given=True, own=gates),
    GRU: Keeps(taken=True, given=True, own=gated),
    RNN: Keeps(taken=True, given=True, own=hidden),
    # Normalised values, and one over the deviation of every position.
    LayerNorm: Keeps(
        given=True,
        own=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    Dropout: Keeps(given=True, own=mask_bytes),
    RMSNorm: Keeps(
        given=True,
        own=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    # σ(g); g and u are halves of the saved input.
    SwiGLU: Keeps(
        taken=True, given=True, own=lambda layer, before, after: WIDTH * math.prod(after)
    ),
    GroupedAttention: Keeps(taken=True, given=True, own=turned),
    Tied: Keeps(taken=True, given=True),
    Attention: Keeps(taken=True, given=True, own=softmax),
    Position: Keeps(given=True),
    Rows: Keeps(given=True, view=True),
    MeanPool: Keeps(given=True, own=shares),
    First: Keeps(given=True, view=True),
    Branch: Keeps(given=True, view=True),
    Merge: Keeps(given=True),
}
