"""Forward and backward passes of every layer in float64 NumPy: of images in `images`, of sequences
in `sequence` and `recurrent`, of decoders in `decoder`, of branches and dropout in `model`.

Each layer is a pair of pure functions, looked up by the type of its specification: ``forward(layer,
x, params) -> (y, cache)``, ``backward(layer, dy, cache, params) -> (dx, grads)``. Where dx is
expensive and can be left out, there is also ``gradients(layer, dy, cache) -> grads``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
    GELU,
    GRU,
    LSTM,
    RNN,
    Attention,
    Bias,
    Conv2d,
    Embedding,
    First,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Position,
    ReLU,
    RowBias,
    Rows,
    Tanh,
)
from dualml.algorithms.model.vision import BatchNorm2d, GlobalAvgPool2d
from dualml.backend.reference import decoder, images, recurrent, sequence
from dualml.backend.reference.types import Array, Params, as_matrix


def linear_forward(layer: Linear, x: Array, params: Params) -> tuple[Array, Any]:
    """Return x·Wᵀ + b, (…, inputs) → (…, outputs), without b if the layer has no bias, and x as
    cache."""
    y = x @ params["weight"].T
    if layer.bias:
        y += params["bias"]
    return y, x


def linear_gradients(layer: Linear, dy: Array, x: Array) -> Params:
    """Return the gradients of weight (outputs, inputs) and, if present, bias (outputs,), summed
    over all rows of ``dy`` (…, outputs)."""
    flat = as_matrix(dy)
    grads = {"weight": flat.T @ as_matrix(x)}
    return {**grads, "bias": flat.sum(axis=0)} if layer.bias else grads


def linear_backward(layer: Linear, dy: Array, x: Array, params: Params) -> tuple[Array, Params]:
    """Return dy·W, the gradient of the input, and the gradients of the parameters."""
    return dy @ params["weight"], linear_gradients(layer, dy, x)


def bias_forward(layer: Bias, x: Array, params: Params) -> tuple[Array, Any]:
    """Return x + b and no cache; b has one number per channel of an image (B, C, H, W), otherwise
    one per entry of the last axis."""
    bias = params["bias"]
    return x + (bias[:, None, None] if x.ndim == 4 else bias), None


def bias_backward(layer: Bias, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return ``dy`` unchanged, and as gradient of the bias its sum over all axes but the bias's."""
    return dy, {"bias": dy.sum(axis=(0, 2, 3)) if dy.ndim == 4 else as_matrix(dy).sum(axis=0)}


def relu_forward(layer: ReLU, x: Array, params: Params) -> tuple[Array, Any]:
    """Return max(x, 0), and the mask of positive entries as cache."""
    return np.maximum(x, 0), x > 0


def relu_backward(layer: ReLU, dy: Array, mask: Any, params: Params) -> tuple[Array, Params]:
    """Return the gradient where the input was positive, 0 elsewhere (also at an input of 0)."""
    return dy * mask, {}


def tanh_forward(layer: Tanh, x: Array, params: Params) -> tuple[Array, Any]:
    """Return tanh(x), which is also the cache."""
    y = np.tanh(x)
    return y, y


def tanh_backward(layer: Tanh, dy: Array, y: Array, params: Params) -> tuple[Array, Params]:
    """Return dy · (1 − y²), given the output ``y`` as cache."""
    return dy * (1 - y * y), {}


def gelu_forward(layer: GELU, x: Array, params: Params) -> tuple[Array, Any]:
    """Return x·Φ(x), the exact GELU with Φ from erf, and the cache (x, Φ(x))."""
    from scipy.special import erf  # imported here: it takes a third of a second

    phi = (1 + erf(x / np.sqrt(2))) / 2
    return x * phi, (x, phi)


def gelu_backward(layer: GELU, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """Return dy · (Φ(x) + x·φ(x)), where φ is the standard normal density."""
    x, phi = cache
    return dy * (phi + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)), {}


def flatten_forward(layer: Flatten, x: Array, params: Params) -> tuple[Array, Any]:
    """Reshape (B, …) to (B, D); the cache is the input's shape."""
    return x.reshape(len(x), -1), x.shape


def flatten_backward(layer: Flatten, dy: Array, shape: Any, params: Params) -> tuple[Array, Params]:
    """Reshape the gradient (B, D) to ``shape``, that of the input."""
    return dy.reshape(shape), {}


Forward = Callable[[Any, Array, Params], tuple[Array, Any]]
Backward = Callable[[Any, Array, Any, Params], tuple[Array, Params]]
Gradients = Callable[[Any, Array, Any], Params]

PAIRS: dict[type[Layer], tuple[Forward, Backward]] = {
    Linear: (linear_forward, linear_backward),
    Conv2d: (images.conv_forward, images.conv_backward),
    MaxPool2d: (images.pool_forward, images.pool_backward),
    ReLU: (relu_forward, relu_backward),
    Tanh: (tanh_forward, tanh_backward),
    GELU: (gelu_forward, gelu_backward),
    Flatten: (flatten_forward, flatten_backward),
    Bias: (bias_forward, bias_backward),
    RowBias: (bias_forward, bias_backward),
    Embedding: (sequence.embedding_forward, sequence.embedding_backward),
    LSTM: (recurrent.lstm_forward, recurrent.lstm_backward),
    GRU: (recurrent.gru_forward, recurrent.gru_backward),
    RNN: (recurrent.rnn_forward, recurrent.rnn_backward),
    LayerNorm: (sequence.layer_norm_forward, sequence.layer_norm_backward),
    Attention: (sequence.attention_forward, sequence.attention_backward),
    Position: (sequence.position_forward, sequence.position_backward),
    Rows: (sequence.rows_forward, sequence.rows_backward),
    MeanPool: (sequence.mean_forward, sequence.mean_backward),
    First: (sequence.first_forward, sequence.first_backward),
    Tied: (linear_forward, linear_backward),
    RMSNorm: (decoder.rms_forward, decoder.rms_backward),
    SwiGLU: (decoder.swiglu_forward, decoder.swiglu_backward),
    GroupedAttention: (decoder.grouped_forward, decoder.grouped_backward),
    BatchNorm2d: (images.batch_norm_forward, images.batch_norm_backward),
    GlobalAvgPool2d: (images.average_forward, images.average_backward),
}

#: Gradients of the parameters only, for a layer whose input needs no gradient.
GRADIENTS: dict[type[Layer], Gradients] = {Linear: linear_gradients, Conv2d: images.conv_gradients}
