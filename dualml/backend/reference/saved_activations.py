"""Bytes that the reference's tape holds of each layer, for
`dualml.algorithms.model.saved_activations`: every layer's output, and what its backward pass needs
besides. Numbers are float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

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
    no mask. ``before`` is the shape of its input without the batch."""
    return WIDTH * before[0] if layer.masked else 0


def output_bytes(layer: Layer, before: Shape, after: Shape) -> int:
    """Return the bytes of an array as large as the output, per sample."""
    return WIDTH * math.prod(after)


def norm_bytes(layer: Layer, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of the normalised values, and of one over the deviation of
    every position."""
    return WIDTH * (math.prod(after) + math.prod(after[:-1]))


def relu_bytes(layer: ReLU, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of the mask of positive inputs."""
    return math.prod(after)


def embedding_bytes(layer: Embedding, before: Shape, after: Shape) -> int:
    """Return the bytes, per sample, of the row of every token, and of whether it has a row."""
    return 9 * math.prod(before)


#: Every layer saves its output, for the next one; some also their input.
save_output = partial(SavedForBackward, saves_output=True)
save_both = partial(SavedForBackward, saves_input=True, saves_output=True)
#: Layer → values that the reference saves for its backward pass.
SAVED_BY_LAYER: Mapping[type[Layer], SavedForBackward] = {
    Linear: save_both(),
    Conv2d: save_output(extra_bytes=padded_image_bytes),
    MaxPool2d: save_both(),
    ReLU: save_output(extra_bytes=relu_bytes),
    Tanh: save_output(),
    GELU: save_both(extra_bytes=output_bytes),
    Flatten: save_output(is_view=True),
    Embedding: save_output(extra_bytes=embedding_bytes),
    LSTM: save_both(extra_bytes=lstm_bytes),
    GRU: save_both(extra_bytes=gru_bytes),
    RNN: save_both(extra_bytes=rnn_bytes),
    LayerNorm: save_output(extra_bytes=norm_bytes),
    Dropout: save_output(extra_bytes=mask_bytes),
    RMSNorm: save_output(extra_bytes=norm_bytes),
    SwiGLU: save_both(extra_bytes=output_bytes),  # σ(g); g and u are halves of the saved input
    GroupedAttention: save_both(extra_bytes=grouped_attention_bytes),
    Tied: save_both(),
    Attention: save_both(extra_bytes=attention_bytes),
    Position: save_output(),
    Rows: save_output(is_view=True),
    MeanPool: save_output(extra_bytes=mean_pool_bytes),
    First: save_output(is_view=True),
    Branch: save_output(is_view=True),
    Merge: save_output(),
}
