"""Hypotheses about each kind of layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dualml.finder.causes.base import HALVES, rounded
from dualml.finder.scene import Place
from dualml.model.base import Layer
from dualml.model.layers import (
    LSTM,
    Attention,
    Conv2d,
    Embedding,
    LayerNorm,
    MaxPool2d,
    MeanPool,
    ReLU,
    Tanh,
)
from dualml.reference.layers import PAIRS

Array = NDArray[Any]
#: Changed output of a layer, from its input and parameters.
Change = Callable[[Place], Array]
Changes = Iterator[tuple[str, Change, dict[str, Any]]]
EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def alternatives(layer: Layer) -> Changes:
    """Yield the possible errors of a layer: cause, changed layer, and details."""
    for kind, changes in CHANGES.items():
        if isinstance(layer, kind):
            yield from changes(layer)
    leaves = list(layer.parameters())
    if "bias" in leaves:
        yield "missing-bias", lambda p: again(p, bias=0 * p.own["bias"]), {}
        yield "doubled-bias", lambda p: again(p, bias=2 * p.own["bias"]), {}
    if "weight" in leaves:
        yield "transposed-weight", lambda p: again(p, weight=transposed(p.own["weight"])), {}
    if isinstance(layer, tuple(PAIRS)):
        for half in HALVES:
            narrow: Change = lambda p, half=half: narrowed(p, half)  # noqa: E731
            yield "half-precision", narrow, {"type": half, "of": "inputs and weights"}
    yield "skipped-layer", lambda p: p.value, {}


def again(place: Place, **own: Array) -> Array:
    """Return the output of the layer with some of its parameters replaced."""
    return PAIRS[type(place.layer)][0](place.layer, place.value, {**place.own, **own})[0]


def altered(place: Place, **fields: Any) -> Array:
    """Return the output of the layer with some of its fields replaced."""
    return again(place._replace(layer=replace(place.layer, **fields)))


def narrowed(place: Place, kind: str) -> Array:
    """Return the output of the layer with input and parameters in half precision."""
    value = rounded(place.value, kind) if place.value.dtype.kind == "f" else place.value
    own = {name: rounded(a, kind) for name, a in place.own.items()}
    return again(place._replace(value=value), **own)


def transposed(weight: Array) -> Array:
    """Return the weight with its last two axes swapped, reshaped to the original shape."""
    turned = weight.swapaxes(-1, -2)
    return turned if turned.shape == weight.shape else turned.reshape(weight.shape)


def of_relu(layer: ReLU) -> Changes:
    """Yield possible errors of a ReLU."""
    from scipy.special import erf

    def gelu_tanh(x: Array) -> Any:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def elu(x: Array) -> Array:
        return np.where(x > 0, x, np.expm1(x))

    for slope in (0.01, 0.1, 0.2, 0.25):
        leaky: Change = lambda p, s=slope: np.where(p.value > 0, p.value, s * p.value)  # noqa: E731
        yield "leaky-relu", leaky, {"slope": slope}
    yield "gelu", lambda p: p.value * 0.5 * (1 + erf(p.value / np.sqrt(2))), {"form": "erf"}
    yield "gelu", lambda p: gelu_tanh(p.value), {"form": "tanh"}
    yield "other-activation", lambda p: p.value / (1 + np.exp(-p.value)), {"is": "SiLU"}
    yield "other-activation", lambda p: elu(p.value), {"is": "ELU"}
    yield "other-activation", lambda p: np.clip(p.value, 0, 6), {"is": "ReLU6"}
    yield "other-activation", lambda p: np.abs(p.value), {"is": "abs"}
    yield "other-activation", lambda p: np.tanh(p.value), {"is": "tanh"}


def of_tanh(layer: Tanh) -> Changes:
    """Yield possible errors of a tanh."""
    yield "other-activation", lambda p: np.maximum(p.value, 0), {"is": "ReLU"}
    yield "other-activation", lambda p: 1 / (1 + np.exp(-p.value)), {"is": "sigmoid"}
    yield "other-activation", lambda p: np.clip(p.value, -1, 1), {"is": "hardtanh"}
    yield "tanh-approximation", lambda p: rational_tanh(p.value), {}


def rational_tanh(x: Array) -> Any:
    """Return tanh by Lambert's continued fraction to x⁷, which fast kernels use."""
    s = x * x
    up = x * (135135 + s * (17325 + s * (378 + s)))
    return np.clip(up / (135135 + s * (62370 + s * (3150 + s * 28))), -1, 1)


def of_conv(layer: Conv2d) -> Changes:
    """Yield possible errors of a convolution."""
    n = layer.padding

    def bordered(place: Place, before: int, after: int, mode: Any = "constant") -> Array:
        """Return the output of the convolution with another padding."""
        side = (before, after)
        value = np.pad(place.value, ((0, 0), (0, 0), side, side), mode)
        return altered(place._replace(value=value), padding=0)

    yield "flipped-kernel", lambda p: again(p, weight=p.own["weight"][..., ::-1, ::-1]), {}
    for padding in {0, layer.kernel // 2, layer.kernel - 1} - {n}:
        yield "conv-padding", lambda p, m=padding: altered(p, padding=m), {"padding": padding}
    for mode in ("edge", "reflect", "wrap"):
        yield "pad-mode", lambda p, mode=mode: bordered(p, n, n, mode), {"mode": mode}
    # More padding on one side, as 'same' does with an odd total.
    for by in (1, -1) if n else ():
        yield "shifted-padding", lambda p, by=by: bordered(p, n + by, n - by), {"by": by}


def of_pool(layer: MaxPool2d) -> Changes:
    """Yield possible errors of max pooling."""
    k = layer.kernel

    def cells(x: Array) -> Array:
        b, c, h, w = x.shape
        return x[:, :, : h // k * k, : w // k * k].reshape(b, c, h // k, k, w // k, k)

    windows: Any = sliding_window_view
    yield "average-pool", lambda p: cells(p.value).mean(axis=(3, 5)), {}
    yield "minimum-pool", lambda p: cells(p.value).min(axis=(3, 5)), {}
    sliding: Change = lambda p: windows(p.value, (k, k), axis=(2, 3)).max((-1, -2))  # noqa: E731
    yield "maxpool-stride", sliding, {"stride": 1}


def of_norm(layer: LayerNorm) -> Changes:
    """Yield possible errors of a LayerNorm."""

    def normalised(p: Place, ddof: int = 0, outside: bool = False, axis: int = -1) -> Any:
        mean = p.value.mean(axis, keepdims=True)
        var = p.value.var(axis, keepdims=True, ddof=ddof)
        root = np.sqrt(var) + layer.eps if outside else np.sqrt(var + layer.eps)
        return (p.value - mean) / root * p.own["weight"] + p.own["bias"]

    for eps in EPSILONS:
        if eps != layer.eps:
            yield "layernorm-eps", lambda p, e=eps: altered(p, eps=e), {"eps": eps}
    yield "biased-variance", lambda p: normalised(p, ddof=1), {"ddof": 1}
    yield "eps-outside-root", lambda p: normalised(p, outside=True), {}
    yield "normalised-axis", lambda p: normalised(p, axis=1), {"axis": 1}


def of_lstm(layer: LSTM) -> Changes:
    """Yield possible errors of an LSTM."""

    def gates(place: Place, order: tuple[str, ...]) -> Array:
        """Read the rows of all parameters as if the gates were stored in another order."""
        at = ["ifgo".index(gate) for gate in order]
        return again(place, **{leaf: np.concatenate([np.split(a, 4)[i] for i in at])
                               for leaf, a in place.own.items()})  # fmt: skip

    def forget(place: Place) -> Array:
        """Add 1 to the bias of the forget gate."""
        bias = place.own["bias_ih_l0"].copy()
        bias[layer.hidden : 2 * layer.hidden] += 1
        return again(place, bias_ih_l0=bias)

    for order in itertools.permutations("ifgo"):
        if order != tuple("ifgo"):
            yield "gate-order", lambda p, o=order: gates(p, o), {"order": "".join(order)}
    for leaf in ("bias_ih_l0", "bias_hh_l0"):
        missing: Change = lambda p, leaf=leaf: again(p, **{leaf: 0 * p.own[leaf]})  # noqa: E731
        yield "missing-bias", missing, {"bias": leaf}
    backwards: Change = lambda p: again(p._replace(value=p.value[:, ::-1]))[:, ::-1]  # noqa: E731
    yield "reversed-sequence", backwards, {}
    yield "forget-bias", forget, {"added": 1.0}


def of_attention(layer: Attention) -> Changes:
    """Yield possible errors of attention."""

    def width(place: Place) -> int:
        """Return the width of a head."""
        return int(place.value.shape[-1] // 3 // layer.heads)

    def rescaled(place: Place, factor: float) -> Array:
        """Multiply the scores by a number, by scaling the queries."""
        value = place.value.copy()
        value[..., : value.shape[-1] // 3] *= factor
        return again(place._replace(value=value))

    yield "attention-mask", lambda p: altered(p, causal=not layer.causal), {}
    yield "attention-scale", lambda p: rescaled(p, width(p) ** 0.5), {"scale": "left out"}
    yield "attention-scale", lambda p: rescaled(p, width(p) ** -0.5), {"scale": "1/d"}
    yield "attention-scale", lambda p: rescaled(p, layer.heads**-0.5), {"scale": "1/√D"}
    for heads in (1, 2, 4, 8):
        if heads != layer.heads:
            yield "attention-heads", lambda p, h=heads: altered(p, heads=h), {"heads": heads}


def of_embedding(layer: Embedding) -> Changes:
    """Yield possible errors of an embedding."""
    for by in (1, -1):
        shifted: Change = lambda p, by=by: again(p, weight=np.roll(p.own["weight"], by, 0))  # noqa: E731
        yield "shifted-tokens", shifted, {"by": by}
    yield "padding-row", lambda p: np.where((p.value == 0)[..., None], 0.0, again(p)), {"token": 0}
    yield "scaled-embedding", lambda p: again(p) * np.sqrt(layer.features), {"factor": "√D"}


def of_mean(layer: MeanPool) -> Changes:
    """Yield possible errors of mean pooling."""
    yield "sum-not-mean", lambda p: p.value.sum(1), {}
    yield "last-not-mean", lambda p: p.value[:, -1], {}
    yield "maximum-not-mean", lambda p: p.value.max(1), {}


CHANGES: dict[type[Layer], Callable[[Any], Changes]] = {
    ReLU: of_relu,
    Tanh: of_tanh,
    Conv2d: of_conv,
    MaxPool2d: of_pool,
    LayerNorm: of_norm,
    LSTM: of_lstm,
    Attention: of_attention,
    Embedding: of_embedding,
    MeanPool: of_mean,
}
