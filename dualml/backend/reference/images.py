"""Forward and backward passes of image layers in float64 NumPy; see `layers`.

Shapes: B batch, C and O channels, H and W image, K kernel, P pixels of some rows of the output.
Callers see values as (B, C, H, W). In memory the samples come last, so that what a kernel reads at
one of its places is long runs of adjacent values, which are copied and added at full speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dualml.algorithms.model.layers import Conv2d, MaxPool2d, strided_output_size
from dualml.algorithms.model.vision import BatchNorm2d, GlobalAvgPool2d
from dualml.backend.reference.types import LEARNING, Array, Params

#: Numbers in the windows of a strip: 1 MB, which fits the cache of a core.
WINDOWS = 2**17
#: Axes of (B, C, H, W) other than the channels.
AXES = (0, 2, 3)


def batch_last(x_BCHW: Array) -> Array:
    """Return the images as contiguous (C, H, W, B); copied only where they are not so already."""
    return np.ascontiguousarray(np.moveaxis(x_BCHW, 0, -1))


def strips(layer: Conv2d, shape_CHWB: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield consecutive strips of output rows that together cover the output of a padded image of
    this shape: (first row from 0, one past the last), a few rows each."""
    channels, *size, b = shape_CHWB
    height, width = strided_output_size((size[0], size[1]), layer.kernel, layer.stride, 0)
    step = max(1, WINDOWS // (channels * layer.kernel**2 * width * b))
    for first in range(0, height, step):
        yield first, min(first + step, height)


def im2col(layer: Conv2d, x_CHWB: Array, first: int, last: int) -> Array:
    """Return the windows that the kernel reads for output rows ``first`` … ``last`` − 1 of the
    padded input, one column per output pixel and sample: a matrix (C·K·K, P·B)."""
    k, s = layer.kernel, layer.stride
    width = (x_CHWB.shape[2] - k) // s + 1
    size = (s * (last - first - 1) + 1, s * (width - 1) + 1)
    seen: Any = x_CHWB[:, s * first : s * first + size[0] + k - 1, : size[1] + k - 1]
    places = sliding_window_view(seen, size, axis=(1, 2))  # type: ignore[call-overload]  # C K K B H' W'
    flat: Array = np.moveaxis(places[..., ::s, ::s], 3, -1).reshape(layer.inputs * k * k, -1)
    return flat


def conv_forward(layer: Conv2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Return the convolution (B, O, H, W), a matrix product in which every window is a column, and
    as cache the padded input (C, H, W, B)."""
    side, k = (layer.padding, layer.padding), layer.kernel
    padded = np.pad(np.moveaxis(x_BCHW, 0, -1), ((0, 0), side, side, (0, 0)))
    _, height, width, b = padded.shape
    y = np.empty((layer.outputs, *strided_output_size((height, width), k, layer.stride, 0), b))
    weight = params["weight"].reshape(layer.outputs, -1)
    bias = params["bias"][:, None, None, None] if layer.bias else 0.0
    for first, last in strips(layer, padded.shape):
        strip = y[:, first:last]
        product = weight @ im2col(layer, padded, first, last)
        np.add(product.reshape(strip.shape), bias, out=strip)
    return np.moveaxis(y, -1, 0), padded


def conv_gradients(layer: Conv2d, dy_BOHW: Array, padded: Array) -> Params:
    """Return the gradients of weight (O, C, K, K) and, if present, bias (O,), from that of the
    output and the padded input (C, H, W, B)."""
    dy = batch_last(dy_BOHW)
    weight = np.zeros((layer.outputs, layer.inputs * layer.kernel**2))
    for first, last in strips(layer, padded.shape):
        strip = dy[:, first:last].reshape(layer.outputs, -1)
        weight += strip @ im2col(layer, padded, first, last).T
    grads = {"weight": weight.reshape(layer.outputs, layer.inputs, layer.kernel, layer.kernel)}
    return {**grads, "bias": dy.sum(axis=(1, 2, 3))} if layer.bias else grads


def conv_backward(
    layer: Conv2d, dy_BOHW: Array, padded: Array, params: Params
) -> tuple[Array, Params]:
    """Return the gradients of input (B, C, H, W) and parameters; each output pixel's is spread over
    its window, one place of the kernel at a time."""
    channels, height, width, _ = padded.shape
    k, s, p = layer.kernel, layer.stride, layer.padding
    dy, weight = batch_last(dy_BOHW), params["weight"].reshape(layer.outputs, -1)
    dx = np.zeros(padded.shape)
    for first, last in strips(layer, padded.shape):
        strip = dy[:, first:last]
        spread = weight.T @ strip.reshape(layer.outputs, -1)
        spread = spread.reshape(channels, k, k, *strip.shape[1:])
        for i in range(k):
            for j in range(k):
                rows = slice(s * first + i, s * (last - 1) + i + 1, s)
                columns = slice(j, j + s * (strip.shape[2] - 1) + 1, s)
                dx[:, rows, columns] += spread[:, i, j]
    inner = dx[:, p : height - p, p : width - p]
    return np.moveaxis(inner, -1, 0), conv_gradients(layer, dy_BOHW, padded)


def window_pixels(layer: MaxPool2d, x_CHWB: Array) -> list[Array]:
    """Return K·K views of the image: number n holds the n-th pixel of every window, row by row."""
    k, s = layer.kernel, layer.step
    h, w = (
        s * (side - 1) + 1
        for side in strided_output_size((x_CHWB.shape[1], x_CHWB.shape[2]), k, s, 0)
    )
    return [x_CHWB[:, i : i + h : s, j : j + w : s] for i in range(k) for j in range(k)]


def pool_forward(layer: MaxPool2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Compute max pooling, with padding of −∞; the cache is the padded input and the output, both
    (C, H, W, B)."""
    x, p = batch_last(x_BCHW), layer.padding
    if p:
        x = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)), constant_values=-np.inf)
    y: Array = reduce(np.maximum, window_pixels(layer, x))
    return np.moveaxis(y, -1, 0), (x, y)


def pool_backward(
    layer: MaxPool2d, dy_BCHW: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradient of max pooling, which goes to the first of equal maxima, as in PyTorch
    and MindSpore."""
    x, y = cache
    dy, dx, waiting = batch_last(dy_BCHW), np.zeros_like(x), np.ones_like(y, bool)
    for value, place in zip(window_pixels(layer, x), window_pixels(layer, dx), strict=True):
        best = ~(value < y) & waiting  # written so that nan also receives the gradient
        place += dy * best  # a pixel may be the largest of several windows
        waiting ^= best
    _, height, width, _ = dx.shape
    p = layer.padding
    return np.moveaxis(dx[:, p : height - p, p : width - p], -1, 0), {}


def batch_norm_forward(layer: BatchNorm2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Compute batch normalisation (B, C, H, W) → (B, C, H, W); the cache is the normalised values
    and their scale. If ``params[LEARNING]``, use the statistics of the batch and move the running
    statistics in ``params`` towards them in place; otherwise use the running ones."""
    mean, variance = params["running_mean"], params["running_var"]
    if params[LEARNING]:
        count = x_BCHW.size // layer.channels
        average, spread = x_BCHW.mean(axis=AXES), x_BCHW.var(axis=AXES)
        for running, now in ((mean, average), (variance, spread * (count / (count - 1)))):
            running += layer.momentum * (now - running)
        mean, variance = average, spread
    scale = 1 / np.sqrt(variance + layer.eps)
    normal = (x_BCHW - per_channel(mean)) * per_channel(scale)
    y = normal * per_channel(params["weight"]) + per_channel(params["bias"])
    return y, (normal, scale)


def batch_norm_backward(
    layer: BatchNorm2d, dy_BCHW: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """Return the gradients of batch normalisation in training with respect to x and to ``weight``
    and ``bias``. The batch's statistics depend on x, which the first takes into account."""
    normal, scale = cache
    grads = {"weight": (dy_BCHW * normal).sum(axis=AXES), "bias": dy_BCHW.sum(axis=AXES)}
    count = dy_BCHW.size // layer.channels
    mean = per_channel(grads["bias"] / count) + normal * per_channel(grads["weight"] / count)
    return (dy_BCHW - mean) * per_channel(params["weight"] * scale), grads


def per_channel(x_C: Array) -> Array:
    """Reshape one number per channel (C,) to broadcast against (B, C, H, W)."""
    return x_C[:, None, None]


def average_forward(layer: GlobalAvgPool2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Return the mean of each channel, (B, C, H, W) → (B, C), and the input's shape as cache."""
    return x_BCHW.mean(axis=(2, 3)), x_BCHW.shape


def average_backward(
    layer: GlobalAvgPool2d, dy_BC: Array, shape: Any, params: Params
) -> tuple[Array, Params]:
    """Spread the gradient of each mean evenly over the pixels of its channel, (B, C) → ``shape``
    (B, C, H, W); the result is a read-only view."""
    spread = dy_BC[:, :, None, None] / (shape[2] * shape[3])
    return np.broadcast_to(spread, shape), {}
