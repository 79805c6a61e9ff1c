"""Forward and backward of every layer in float64 NumPy.

Shapes: B batch, C and O channels, H and W image, K kernel, P pixels of the output.
Each layer is a pair of pure functions found by the type of its spec:
``forward(layer, x, params) -> (y, cache)``, ``backward(layer, dy, cache, params) -> (dx, grads)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dualml.model.spec import Conv2d, Flatten, Layer, Linear, MaxPool2d, ReLU, Tanh

Array = NDArray[np.float64]
Params = dict[str, Array]


def linear_forward(layer: Linear, x: Array, params: Params) -> tuple[Array, Any]:
    return x @ params["weight"].T + params["bias"], x


def linear_backward(layer: Linear, dy: Array, x: Array, params: Params) -> tuple[Array, Params]:
    return dy @ params["weight"], {"weight": dy.T @ x, "bias": dy.sum(axis=0)}


def conv_forward(layer: Conv2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Every window becomes one row of a matrix; the convolution is one matrix product."""
    k, p = layer.kernel, layer.padding
    padded = np.pad(x_BCHW, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = sliding_window_view(padded, (k, k), axis=(2, 3))  # type: ignore[call-overload]  # B C H' W' K K
    b, _, h, w = windows.shape[:4]
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(b * h * w, -1)  # BP, CKK
    y = rows @ params["weight"].reshape(layer.outputs, -1).T + params["bias"]
    return y.reshape(b, h, w, layer.outputs).transpose(0, 3, 1, 2), (rows, padded.shape)


def conv_backward(
    layer: Conv2d, dy_BOHW: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    rows, shape = cache
    k, p = layer.kernel, layer.padding
    b, o, h, w = dy_BOHW.shape
    dy = dy_BOHW.transpose(0, 2, 3, 1).reshape(b * h * w, o)
    weight = params["weight"]
    grads = {"weight": (dy.T @ rows).reshape(weight.shape), "bias": dy.sum(axis=0)}
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
}
