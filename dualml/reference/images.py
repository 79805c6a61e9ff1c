"""Forward and backward of the layers that read images, in float64 NumPy; see `layers`.

Shapes: B batch, C and O channels, H and W image, K kernel, P pixels of some rows of the output.
Values are (B, C, H, W) for whoever reads them. In memory the samples stand last: what a kernel sees
at one of its places is then long runs of neighbours, which are copied and added at full speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dualml.model.layers import Conv2d, MaxPool2d
from dualml.reference.types import Array, Params

#: Numbers in the windows of a strip: 1 MB, what the cache of a core holds.
WINDOWS = 2**17


def batch_last(x_BCHW: Array) -> Array:
    """(C, H, W, B) without gaps; copied only where it is not so already."""
    return np.ascontiguousarray(np.moveaxis(x_BCHW, 0, -1))


def strips(layer: Conv2d, shape_CHWB: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of the output for an image of this shape, few at a time."""
    channels, height, width, b = shape_CHWB
    k = layer.kernel
    step = max(1, WINDOWS // (channels * k * k * (width - k + 1) * b))
    for first in range(0, height - k + 1, step):
        yield first, min(first + step, height - k + 1)


def windows(layer: Conv2d, x_CHWB: Array, first: int, last: int) -> Array:
    """What each place of the kernel sees for these rows of the output: (CKK, PB)."""
    k = layer.kernel
    seen: Any = x_CHWB[:, first : last + k - 1]
    size = (last - first, x_CHWB.shape[2] - k + 1)
    places = sliding_window_view(seen, size, axis=(1, 2))  # type: ignore[call-overload]  # C K K B H' W'
    flat: Array = np.moveaxis(places, 3, -1).reshape(layer.inputs * k * k, -1)
    return flat


def conv_forward(layer: Conv2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    """Every window becomes a column of a matrix; the convolution is a matrix product."""
    side, k = (layer.padding, layer.padding), layer.kernel
    padded = np.pad(np.moveaxis(x_BCHW, 0, -1), ((0, 0), side, side, (0, 0)))
    _, height, width, b = padded.shape
    y = np.empty((layer.outputs, height - k + 1, width - k + 1, b))
    weight = params["weight"].reshape(layer.outputs, -1)
    bias = params["bias"][:, None, None, None] if layer.bias else 0.0
    for first, last in strips(layer, padded.shape):
        strip = y[:, first:last]
        product = weight @ windows(layer, padded, first, last)
        np.add(product.reshape(strip.shape), bias, out=strip)
    return np.moveaxis(y, -1, 0), padded


def conv_gradients(layer: Conv2d, dy_BOHW: Array, padded: Array) -> Params:
    """Of the parameters."""
    dy = batch_last(dy_BOHW)
    weight = np.zeros((layer.outputs, layer.inputs * layer.kernel**2))
    for first, last in strips(layer, padded.shape):
        strip = dy[:, first:last].reshape(layer.outputs, -1)
        weight += strip @ windows(layer, padded, first, last).T
    grads = {"weight": weight.reshape(layer.outputs, layer.inputs, layer.kernel, layer.kernel)}
    return {**grads, "bias": dy.sum(axis=(1, 2, 3))} if layer.bias else grads


def conv_backward(
    layer: Conv2d, dy_BOHW: Array, padded: Array, params: Params
) -> tuple[Array, Params]:
    """Each pixel of the output spreads over its window, one place of the kernel at a time."""
    channels, height, width, _ = padded.shape
    k, p = layer.kernel, layer.padding
    dy, weight = batch_last(dy_BOHW), params["weight"].reshape(layer.outputs, -1)
    dx = np.zeros(padded.shape)
    for first, last in strips(layer, padded.shape):
        strip = dy[:, first:last]
        spread = weight.T @ strip.reshape(layer.outputs, -1)
        spread = spread.reshape(channels, k, k, *strip.shape[1:])
        for i in range(k):
            for j in range(k):
                dx[:, first + i : last + i, j : j + width - k + 1] += spread[:, i, j]
    inner = dx[:, p : height - p, p : width - p]
    return np.moveaxis(inner, -1, 0), conv_gradients(layer, dy_BOHW, padded)


def cells(layer: MaxPool2d, x_CHWB: Array) -> list[Array]:
    """Views of the first, second, … pixel of every square, row by row."""
    k = layer.kernel
    h, w = (side // k * k for side in x_CHWB.shape[1:3])
    return [x_CHWB[:, i:h:k, j:w:k] for i in range(k) for j in range(k)]


def pool_forward(layer: MaxPool2d, x_BCHW: Array, params: Params) -> tuple[Array, Any]:
    x = batch_last(x_BCHW)
    y: Array = reduce(np.maximum, cells(layer, x))
    return np.moveaxis(y, -1, 0), (x, y)


def pool_backward(
    layer: MaxPool2d, dy_BCHW: Array, cache: Any, params: Params
) -> tuple[Array, Params]:
    """To the first of equal maxima, as in PyTorch and MindSpore."""
    x, y = cache
    dy, dx, waiting = batch_last(dy_BCHW), np.zeros_like(x), np.ones_like(y, bool)
    for value, place in zip(cells(layer, x), cells(layer, dx), strict=True):
        best = ~(value < y) & waiting  # so written that what is no number passes on, too
        np.multiply(dy, best, out=place)
        waiting ^= best
    return np.moveaxis(dx, -1, 0), {}
