"""Interpolation with other positions or weights than PyTorch's, as other frameworks have it."""

from __future__ import annotations

import math
from typing import Any

import torch

from dualml_torch.parity.causes.call_forms import MutationTarget
from dualml_torch.parity.operations import BoundCall

Value = torch.Tensor
#: Slope of cubic weights in PyTorch, and in TensorFlow 2, Pillow and Keys' paper.
CUBIC, KEYS = -0.75, -0.5


def resample(call: MutationTarget) -> Value:
    """Run an interpolation in the way ``change.value``, one axis after the other.

    ``corners``: output pixel i lies at i · (input length / output length), without half-pixel
    centres. ``rounded``: the nearest input pixel to that, where PyTorch takes the one below.
    ``keys``: cubic weights with the slope −0.5 instead of −0.75.

    Raises:
        ValueError: the mode has no such way.
    """
    way = str(call.change.value)
    given: dict[str, Any] = BoundCall(call.func, call.name, call.args, call.kwargs).values
    mode = str(given.get("mode", "nearest"))
    fits = {"corners": ("linear", "bilinear", "trilinear", "bicubic")}
    fits |= {"rounded": ("nearest",), "keys": ("bicubic",)}
    if mode not in fits[way] or given.get("antialias"):
        raise ValueError(f"{mode} is not resampled by {way}")
    x: Value = call.tensors[0]
    target = call.func(*call.args, **call.kwargs)
    for axis in range(2, x.dim()):
        aligned = bool(given.get("align_corners"))
        matrix = sampling_matrix(x.shape[axis], target.shape[axis], way, mode, aligned)
        x = torch.tensordot(x, matrix.to(x), ([axis], [1])).movedim(-1, axis)
    return x


def sampling_matrix(length: int, wanted: int, way: str, mode: str, aligned: bool) -> Value:
    """Return the float64 weights (wanted, length) with which input pixels along an axis make output
    pixels.

    Args:
        way: as in `resample`.
        mode: the interpolation's ``mode``; cubic weights for ``bicubic``, else linear ones.
        aligned: the interpolation's ``align_corners``; only for the way ``keys``.
    """
    matrix = torch.zeros(wanted, length, dtype=torch.float64)
    for i in range(wanted):
        place = i * length / wanted
        if way == "keys":
            ends = (length - 1) / max(wanted - 1, 1)
            place = i * ends if aligned else (i + 0.5) * length / wanted - 0.5
        if way == "rounded":
            matrix[i, min(math.floor(place + 0.5), length - 1)] = 1
            continue
        low = math.floor(place)
        for k in range(-1, 3) if mode == "bicubic" else range(2):
            weight = 1 - abs(place - low - k)
            if mode == "bicubic":
                weight = cubic_weight(abs(place - low - k), KEYS if way == "keys" else CUBIC)
            matrix[i, min(max(low + k, 0), length - 1)] += weight
    return matrix


def cubic_weight(x: float, slope: float) -> float:
    """Return the weight of a pixel at distance ``x`` ≥ 0 in cubic convolution; ``slope`` is the
    weight's derivative at distance 1."""
    if x <= 1:
        return (slope + 2) * x**3 - (slope + 3) * x**2 + 1
    return slope * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0
