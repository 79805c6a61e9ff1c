"""Forward and backward of every layer in float64 NumPy; of sequences in `sequence`, `attention` and
`normalise`, of branches and dropout in `model`.

Shapes: B batch, C and O channels, H and W image, K kernel, P pixels of the output.
Each layer is a pair of pure functions found by the type of its spec:
``forward(layer, x, params) -> (y, cache)``, ``backward(layer, dy, cache, params) -> (dx, grads)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dualml.model.base import Layer
from dualml.model.layers import (
    LSTM,
    Attention,
    Bias,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Position,
    ReLU,
    Rows,
    Tanh,
)
from dualml.reference.sequence import (
    attention_backward,
    attention_forward,
    embedding_backward,
    embedding_forward,
    lstm_backward,
    lstm_forward,
    mean_backward,
    mean_forward,
    norm_backward,
    norm_forward,
    position_backward,
    position_forward,
    rows_backward,
    rows_forward,
)
from dualml.reference.types import Array, Params, rows


def linear_forward(layer: Linear, x: Array, params: Params) -> tuple[Array, Any]:
    y = x @ params["weight"].T
    return y + params["bias"] if layer.bias else y, x


def linear_backward(layer: Linear, dy: Array, x: Array, params: Params) -> tuple[Array, Params]:
    flat = rows(dy)
    return dy @ params["weight"], {"weight": flat.T @ rows(x), **bias_gradient(layer, flat)}


def bias_gradient(layer: Linear | Conv2d, dy: Array) -> Params:
    """Of the bias that was added to every row of a matrix."""
    return {"bias": dy.sum(axis=0)} if layer.bias else {}


def bias_forward(layer: Bias, x: Array, params: Params) -> tuple[Array, Any]:
    bias = params["bias"]
    return x + (bias[:, None, None] if x.ndim == 4 else bias), None


def bias_backward(layer: Bias, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    return dy, {"bias": dy.sum(axis=(0, 2, 3)) if dy.ndim == 4 else rows(dy).sum(axis=0)}


def conv_forward(layer: Conv2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Every window becomes one row of a matrix; the convolution is one matrix product."""
    k, p = layer.kernel, layer.padding
    padded = np.pad(x_BCHW, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = sliding_window_view(padded, (k, k), axis=(2, 3))  # type: ignore[call-overload]  # B C H' W' K K
    b, _, h, w = windows.shape[:4]
    flat = windows.transpose(0, 2, 3, 1, 4, 5).reshape(b * h * w, -1)  # BP, CKK
    y = flat @ params["weight"].reshape(layer.outputs, -1).T
    if layer.bias:
        y += params["bias"]
    return y.reshape(b, h, w, layer.outputs).transpose(0, 3, 1, 2), (flat, padded.shape)


def conv_backward(
    layer: Conv2d, dy_BOHW: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    flat, shape = cache
    k, p = layer.kernel, layer.padding
    b, o, h, w = dy_BOHW.shape
    dy = dy_BOHW.transpose(0, 2, 3, 1).reshape(b * h * w, o)
    weight = params["weight"]
    grads = {"weight": (dy.T @ flat).reshape(weight.shape), **bias_gradient(layer, dy)}
    spread = (dy @ weight.reshape(o, -1)).reshape(b, h, w, layer.inputs, k, k)
    dx = np.zeros(shape)
    for i in range(k):
        for j in range(k):
            dx[:, :, i : i + h, j : j + w] += spread[:, :, :, :, i, j].transpose(0, 3, 1, 2)
    return dx[:, :, p : shape[2] - p, p : shape[3] - p], grads


def pool_forward(layer: MaxPool2d, x: Array, params: Params) -> tuple[Array, Any]:
    k = layer.kernel
    b, c, height, width = x.shape
    h, w = height // k, width // k
    cells = x[:, :, : h * k, : w * k].reshape(b, c, h, k, w, k).transpose(0, 1, 2, 4, 3, 5)
    cells = cells.reshape(b, c, h, w, k * k)
    best = cells.argmax(axis=-1)  # the first of equal maxima, as in PyTorch and MindSpore
    return np.take_along_axis(cells, best[..., None], -1)[..., 0], (best, x.shape)


def pool_backward(layer: MaxPool2d, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    best, shape = cache
    k = layer.kernel
    b, c, h, w = dy.shape
    cells = np.zeros((b, c, h, w, k * k))
    np.put_along_axis(cells, best[..., None], dy[..., None], -1)
    dx = np.zeros(shape)
    cells = cells.reshape(b, c, h, w, k, k).transpose(0, 1, 2, 4, 3, 5)
    dx[:, :, : h * k, : w * k] = cells.reshape(b, c, h * k, w * k)
    return dx, {}


def relu_forward(layer: ReLU, x: Array, params: Params) -> tuple[Array, Any]:
    return np.maximum(x, 0), x > 0


def relu_backward(layer: ReLU, dy: Array, mask: Any, params: Params) -> tuple[Array, Params]:
    return dy * mask, {}


def tanh_forward(layer: Tanh, x: Array, params: Params) -> tuple[Array, Any]:
    y = np.tanh(x)
    return y, y


def tanh_backward(layer: Tanh, dy: Array, y: Array, params: Params) -> tuple[Array, Params]:
    return dy * (1 - y * y), {}


def flatten_forward(layer: Flatten, x: Array, params: Params) -> tuple[Array, Any]:
    return x.reshape(len(x), -1), x.shape


def flatten_backward(layer: Flatten, dy: Array, shape: Any, params: Params) -> tuple[Array, Params]:
    return dy.reshape(shape), {}


Forward = Callable[[Any, Array, Params], tuple[Array, Any]]
Backward = Callable[[Any, Array, Any, Params], tuple[Array, Params]]

PAIRS: dict[type[Layer], tuple[Forward, Backward]] = {
    Linear: (linear_forward, linear_backward),
    Conv2d: (conv_forward, conv_backward),
    MaxPool2d: (pool_forward, pool_backward),
    ReLU: (relu_forward, relu_backward),
    Tanh: (tanh_forward, tanh_backward),
    Flatten: (flatten_forward, flatten_backward),
    Bias: (bias_forward, bias_backward),
    Embedding: (embedding_forward, embedding_backward),
    LSTM: (lstm_forward, lstm_backward),
    LayerNorm: (norm_forward, norm_backward),
    Attention: (attention_forward, attention_backward),
    Position: (position_forward, position_backward),
    Rows: (rows_forward, rows_backward),
    MeanPool: (mean_forward, mean_backward),
}
