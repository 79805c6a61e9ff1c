"""A small model around every layer of sequences, with parameters before it as well.

The gradient of those is the one with respect to the layer's input: both of its results are seen.
"""

from __future__ import annotations

import numpy as np

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.dropout import dropout_masks
from dualml.algorithms.model.layers import (
    GELU,
    GRU,
    LSTM,
    RNN,
    Attention,
    Bias,
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
    Rows,
    Swap,
    Tanh,
)
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.vision import BatchNorm2d, GlobalAvgPool2d

BATCH, LABELS, SEED = 6, 3, 7


def case(shape: tuple[int, ...], *layers: Layer) -> ModelSpec:
    return ModelSpec("case", shape, tuple((f"l{i}", layer) for i, layer in enumerate(layers)))


CASES = {
    "linear of a sequence": case((5, 4), Linear(4, 6), Tanh(), Linear(6, LABELS)),
    "linear without bias": case((4,), Linear(4, 5, bias=False), Linear(5, LABELS, bias=False)),
    "convolution without bias": case(
        (2, 5, 4), Conv2d(2, 3, 3, padding=1, bias=False), Flatten(), Linear(60, LABELS)
    ),
    "convolution with a stride": case(
        (2, 7, 6), Conv2d(2, 3, 3, padding=1, stride=2), Flatten(), Linear(36, LABELS)
    ),
    "convolution of single pixels with a stride": case(
        (2, 5, 6), Conv2d(2, 3, 1, bias=False, stride=2), Flatten(), Linear(27, LABELS)
    ),
    "maximum of windows that overlap": case(
        (2, 7, 6),
        *(Conv2d(2, 3, 3, padding=1), MaxPool2d(3, stride=2, padding=1)),
        *(Flatten(), Linear(36, LABELS)),
    ),
    "batch normalisation": case(
        (2, 5, 4),
        *(Conv2d(2, 3, 3, padding=1, bias=False), BatchNorm2d(3, eps=0.1, momentum=0.3), Tanh()),
        *(Flatten(), Linear(60, LABELS)),
    ),
    "mean of every channel": case((2, 5, 4), Conv2d(2, 3, 3), GlobalAvgPool2d(), Linear(3, LABELS)),
    "layers on the shortcut": case(
        (4,),
        *(Linear(4, 5), Branch(), Linear(5, 6), Tanh(), Swap(), Linear(5, 6), Merge(), Tanh()),
        Linear(6, LABELS),
    ),
    "bias of channels": case(
        (1, 5, 4), Conv2d(1, 2, 3, bias=False), Bias(2), Flatten(), Linear(12, LABELS)
    ),
    "bias": case((5, 4), Linear(4, LABELS, bias=False), Bias(LABELS)),
    "embedding": case((6,), Embedding(9, 4), Linear(4, LABELS)),
    "slice of an embedding": case((6,), Embedding(4, 5, first=3), Linear(5, LABELS)),
    "lstm": case((5, 4), Linear(4, 3), LSTM(3, 4), Linear(4, LABELS)),
    "gru": case((5, 4), Linear(4, 3), GRU(3, 4), Linear(4, LABELS)),
    "rnn with tanh": case((5, 4), Linear(4, 3), RNN(3, 4), Linear(4, LABELS)),
    "rnn with relu": case((5, 4), Linear(4, 3), RNN(3, 4, nonlinearity="relu"), Linear(4, LABELS)),
    "two recurrent layers with dropout between": case(
        (5, 4), LSTM(4, 3), Dropout(0.3), GRU(3, 4), Dropout(0.2), Linear(4, LABELS)
    ),
    "layer norm": case((5, 4), Linear(4, 6), LayerNorm(6, eps=0.1), Linear(6, LABELS)),
    "attention": case((5, 4), Linear(4, 12), Attention(2), Linear(4, LABELS)),
    "causal attention": case((5, 4), Linear(4, 12), Attention(2, causal=True), Linear(4, LABELS)),
    "gelu": case((5, 4), Linear(4, 6), GELU(), Linear(6, LABELS)),
    "first of a sequence": case((5, 4), Linear(4, 6), Tanh(), First(), Linear(6, LABELS)),
    "attention that passes over padding": case(
        (6,), Embedding(9, 12), Attention(2, masked=True), Linear(4, LABELS)
    ),
    "causal attention that passes over padding": case(
        (6,), Embedding(9, 12), Attention(2, True, masked=True), Linear(4, LABELS)
    ),
    "mean that passes over padding": case(
        (6,), Embedding(9, 4), Tanh(), MeanPool(masked=True), Linear(4, LABELS)
    ),
    "rms norm": case((5, 4), Linear(4, 6), RMSNorm(6, eps=0.1), Linear(6, LABELS)),
    "swiglu": case((5, 4), Linear(4, 6), SwiGLU(), Linear(3, LABELS)),
    "attention of groups of heads": case(
        (5, 4), Linear(4, 16), GroupedAttention(4, 2, 2, 5), Linear(8, LABELS)
    ),
    "attention with positions turned": case(
        (5, 4), Linear(4, 16), GroupedAttention(2, 1, 4, 5, base=10.0), Linear(8, LABELS)
    ),
    "tied head": case((6,), Embedding(9, 4), Tanh(), Tied(4, 9, of="l0")),
    "tied head with a bias": case((6,), Embedding(9, 4), Tanh(), Tied(4, 9, True, of="l0")),
    "position": case((5, 4), Linear(4, 6), Position(5, 6), Tanh(), Linear(6, LABELS)),
    "rows and their mean": case((1, 5, 4), Rows(), Linear(4, 6), MeanPool(), Linear(6, LABELS)),
    "branches": case(
        (4,),
        *(Linear(4, 5), Branch(), Tanh(), Branch(), Linear(5, 5)),
        *(Merge(), Tanh(), Merge(), Linear(5, LABELS)),
    ),
    "dropout": case((4,), Linear(4, 8), Dropout(0.4), Linear(8, 8), Dropout(0.1), Linear(8, 3)),
}


def weights(spec: ModelSpec) -> dict[str, np.ndarray]:
    """Return weights of the same size for all tensors: a zero bias would hide errors.

    They are small enough for tanh arguments |x| < 3: beyond, MindSpore's tanh on a CPU is off by up
    to 1e-4 (measured on 2.10, at 5), and below by 1e-6.
    """
    draw = np.random.default_rng(3)
    found = {n: draw.normal(0, 0.3, s).astype(np.float32) for n, s in spec.tensors().items()}
    return found | {n: found[n] + np.float32(1.5) for n in spec.buffers if n.endswith("_var")}


def samples(spec: ModelSpec) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 inputs, or tokens from 0 to 8, and a label for every position with logits."""
    draw = np.random.default_rng(4)
    x = draw.normal(size=(BATCH, *spec.input_shape)).astype(np.float32)
    if spec.takes_tokens:
        x = draw.integers(0, 9, (BATCH, *spec.input_shape))
        x[:, 0] = np.maximum(x[:, 0], 1)  # a sentence begins with a token
    out = spec.shapes()[spec.layers[-1][0]]
    return x, draw.integers(0, LABELS, (BATCH, *out[:-1]))


def drawn(spec: ModelSpec, index: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the dropout masks of the first update."""
    return tuple(dropout_masks(spec, SEED, 1, index).values())
