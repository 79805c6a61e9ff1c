"""Bytes that the reference's tape holds of each layer, for
`dualml.algorithms.model.saved_activations`: every layer's output, and what its backward pass needs
besides. Numbers are float64."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
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
from dualml.algorithms.model.saved_activations import SavedForBackward, mask_bytes

WIDTH = 8


def padded_image_bytes(layer: Conv2d, before: Shape, after: Shape) -> int:
    """Return the bytes of a convolution's padded input, per sample."""
    channels, height, width = before
    return WIDTH * channels * (height + 2 * layer.padding) * (width + 2 * layer.padding)


def lstm_bytes(layer: LSTM, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of an LSTM's i, f, g, o, tanh c and h of every step, c of all
    but the last, and both zero states."""
    return WIDTH * layer.hidden * (7 * after[0] + 1)


def gru_bytes(layer: GRU, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of a GRU's r, z, n, the term that r multiplies and h of every
    step, and the zero state."""
    return WIDTH * layer.hidden * (5 * after[0] + 1)


def rnn_bytes(layer: RNN, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of an RNN's h of every step, and of the zero state."""
    return WIDTH * layer.hidden * (after[0] + 1)


def attention_bytes(layer: Attention, before: Shape, after: Shape) -> int:
    """Return the bytes of the attention weights (T, T) of all heads, per sample."""
    return WIDTH * layer.heads * before[0] ** 2


def grouped_attention_bytes(layer: GroupedAttention, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of the softmax, and of queries and keys where they are rotated
    or copied next to one another."""
    queries = layer.length * layer.heads * layer.width
    keys = layer.length * layer.kv_heads * layer.width if layer.base else 0
    copied = queries + keys if layer.base else queries if layer.heads_per_group > 1 else 0
    return WIDTH * (layer.heads * layer.length**2 + copied)


def mean_pool_bytes(layer: MeanPool, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of each position's share of a masked mean; 0 if the layer has
    no mask."""
    return WIDTH * before[0] if layer.masked else 0


#: Layer → values that the reference saves for its backward pass.
SAVED_BY_LAYER: Mapping[type[Layer], SavedForBackward] = {
    Linear: SavedForBackward(saves_input=True, saves_output=True),
    Conv2d: SavedForBackward(saves_output=True, extra_bytes=padded_image_bytes),
    MaxPool2d: SavedForBackward(saves_input=True, saves_output=True),
    ReLU: SavedForBackward(
        saves_output=True, extra_bytes=lambda layer, before, after: math.prod(after)
    ),
    Tanh: SavedForBackward(saves_output=True),
    GELU: SavedForBackward(
        saves_input=True,
        saves_output=True,
        extra_bytes=lambda layer, before, after: WIDTH * math.prod(after),
    ),
    Flatten: SavedForBackward(saves_output=True, is_view=True),
    # Row of every token, and whether the token has a row.
    Embedding: SavedForBackward(
        saves_output=True, extra_bytes=lambda layer, before, after: 9 * math.prod(before)
    ),
    LSTM: SavedForBackward(saves_input=True, saves_output=True, extra_bytes=lstm_bytes),
    GRU: SavedForBackward(saves_input=True, saves_output=True, extra_bytes=gru_bytes),
    RNN: SavedForBackward(saves_input=True, saves_output=True, extra_bytes=rnn_bytes),
    # Normalised values, and one over the deviation of every position.
    LayerNorm: SavedForBackward(
        saves_output=True,
        extra_bytes=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    Dropout: SavedForBackward(saves_output=True, extra_bytes=mask_bytes),
    RMSNorm: SavedForBackward(
        saves_output=True,
        extra_bytes=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    # σ(g); g and u are halves of the saved input.
    SwiGLU: SavedForBackward(
        saves_input=True,
        saves_output=True,
        extra_bytes=lambda layer, before, after: WIDTH * math.prod(after),
    ),
    GroupedAttention: SavedForBackward(
        saves_input=True, saves_output=True, extra_bytes=grouped_attention_bytes
    ),
    Tied: SavedForBackward(saves_input=True, saves_output=True),
    Attention: SavedForBackward(saves_input=True, saves_output=True, extra_bytes=attention_bytes),
    Position: SavedForBackward(saves_output=True),
    Rows: SavedForBackward(saves_output=True, is_view=True),
    MeanPool: SavedForBackward(saves_output=True, extra_bytes=mean_pool_bytes),
    First: SavedForBackward(saves_output=True, is_view=True),
    Branch: SavedForBackward(saves_output=True, is_view=True),
    Merge: SavedForBackward(saves_output=True),
}
