"""Forward and backward of layer normalisation in float64 NumPy; see `layers`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualml.model.layers import LayerNorm
from dualml.reference.types import Array, Params, rows


def norm_forward(layer: LayerNorm, x: Array, params: Params) -> tuple[Array, Any]:
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + layer.eps)
    normal = centred * scale
    return normal * params["weight"] + params["bias"], (normal, scale)


def norm_backward(layer: LayerNorm, dy: Array, cache: Any, params: Params) -> tuple[Array, Params]:
    """The mean and the variance depend on x, too: both projections are taken out of the flow.

    Source: Ioffe and Szegedy 2015, "Batch Normalization", sec. 3, along the other axis.
    """
    normal, scale = cache
    grads = {"weight": rows(dy * normal).sum(axis=0), "bias": rows(dy).sum(axis=0)}
    flow = dy * params["weight"]
    mean = flow.mean(axis=-1, keepdims=True)
    along = (flow * normal).mean(axis=-1, keepdims=True)
    return scale * (flow - mean - normal * along), grads
