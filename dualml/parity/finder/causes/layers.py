"""Hypotheses about each kind of layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.layers import (
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
from dualml.algorithms.model.recurrent import RecurrentLayer
from dualml.backend.reference.layers import PAIRS
from dualml.parity.finder.causes.base import HALVES, round_to_half
from dualml.parity.finder.context import LayerIO

Array = NDArray[Any]
#: Changed output of a layer, from its input and parameters.
Change = Callable[[LayerIO], Array]
Changes = Iterator[tuple[str, Change, dict[str, Any]]]
EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def alternatives(layer: Layer) -> Changes:
    """Yield the possible errors of a layer: those of its kind, then those of any layer, as (cause,
    changed layer, details). The changed layer gives the output from input and parameters."""
    for kind, changes in CHANGES.items():
        if isinstance(layer, kind):
            yield from changes(layer)
    leaves = list(layer.parameters())
    if "bias" in leaves:
        yield "missing-bias", lambda p: recompute_layer(p, bias=0 * p.parameters["bias"]), {}
        yield "doubled-bias", lambda p: recompute_layer(p, bias=2 * p.parameters["bias"]), {}
    if "weight" in leaves:
        yield (
            "transposed-weight",
            lambda p: recompute_layer(p, weight=transpose_weight(p.parameters["weight"])),
            {},
        )
    if isinstance(layer, tuple(PAIRS)):
        for half in HALVES:
            narrow: Change = lambda p, half=half: compute_in_half(p, half)  # noqa: E731
            yield "half-precision", narrow, {"type": half, "of": "inputs and weights"}
    yield "skipped-layer", lambda p: p.value, {}


def recompute_layer(place: LayerIO, **own: Array) -> Array:
    """Return the output of the layer for its input, with the parameters named in ``own``
    replaced."""
    return PAIRS[type(place.layer)][0](place.layer, place.value, {**place.parameters, **own})[0]


def with_fields(place: LayerIO, **fields: Any) -> Array:
    """Return the output of the layer with some of its settings replaced, such as ``eps``."""
    return recompute_layer(place._replace(layer=replace(place.layer, **fields)))


def compute_in_half(place: LayerIO, kind: str) -> Array:
    """Return the output of the layer with input and parameters rounded to half precision; it is
    computed in float64."""
    value = round_to_half(place.value, kind) if place.value.dtype.kind == "f" else place.value
    own = {name: round_to_half(a, kind) for name, a in place.parameters.items()}
    return recompute_layer(place._replace(value=value), **own)


def transpose_weight(weight: Array) -> Array:
    """Return the weight with its last two axes swapped, reshaped to the original shape."""
    turned = weight.swapaxes(-1, -2)
    return turned if turned.shape == weight.shape else turned.reshape(weight.shape)


def relu_changes(layer: ReLU) -> Changes:
    """Yield possible errors of a ReLU: a leaky one, or another activation."""
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


def tanh_changes(layer: Tanh) -> Changes:
    """Yield possible errors of a tanh: another activation, or an approximation."""
    yield "other-activation", lambda p: np.maximum(p.value, 0), {"is": "ReLU"}
    yield "other-activation", lambda p: 1 / (1 + np.exp(-p.value)), {"is": "sigmoid"}
    yield "other-activation", lambda p: np.clip(p.value, -1, 1), {"is": "hardtanh"}
    yield "tanh-approximation", lambda p: rational_tanh(p.value), {}


def recurrent_changes(layer: RecurrentLayer) -> Changes:
    """Yield the possible error of a recurrent layer that its tanh is approximated; nothing without
    a tanh."""
    forward: Any = PAIRS[type(layer)][0]
    if getattr(layer, "nonlinearity", "tanh") == "tanh":
        yield (
            "tanh-approximation",
            lambda p: forward(p.layer, p.value, p.parameters, rational_tanh)[0],
            {},
        )


def rational_tanh(x: Array) -> Any:
    """Approximate tanh by Lambert's continued fraction to x⁷ for |x| ≤ 5, by ±1 beyond.

    In float64 it differs from tanh by 1.0e-4 at |x| = 5 and by less than 1e-9 for |x| ≤ 1.
    MindSpore's kernels for CPUs compute the same in float32 (`TanhOpt` of nnacl).
    """
    s = x * x
    numerator = x * (135135 + s * (17325 + s * (378 + s)))
    denominator = 135135 + s * (62370 + s * (3150 + s * 28))
    return np.where(np.abs(x) > 5, np.sign(x), numerator / denominator)


def conv_changes(layer: Conv2d) -> Changes:
    """Yield possible errors of a convolution: a flipped kernel, or another padding."""
    n = layer.padding

    def pad_and_convolve(place: LayerIO, before: int, after: int, mode: Any = "constant") -> Array:
        """Return the output of the convolution with another padding."""
        side = (before, after)
        value = np.pad(place.value, ((0, 0), (0, 0), side, side), mode)
        return with_fields(place._replace(value=value), padding=0)

    yield (
        "flipped-kernel",
        lambda p: recompute_layer(p, weight=p.parameters["weight"][..., ::-1, ::-1]),
        {},
    )
    for padding in {0, layer.kernel // 2, layer.kernel - 1} - {n}:
        yield "conv-padding", lambda p, m=padding: with_fields(p, padding=m), {"padding": padding}
    for mode in ("edge", "reflect", "wrap"):
        yield "pad-mode", lambda p, mode=mode: pad_and_convolve(p, n, n, mode), {"mode": mode}
    # More padding on one side, as 'same' does with an odd total.
    for by in (1, -1) if n else ():
        yield "shifted-padding", lambda p, by=by: pad_and_convolve(p, n + by, n - by), {"by": by}


def pool_changes(layer: MaxPool2d) -> Changes:
    """Yield possible errors of max pooling: average, minimum, or stride 1."""
    k = layer.kernel

    def cells(x: Array) -> Array:
        b, c, h, w = x.shape
        return x[:, :, : h // k * k, : w // k * k].reshape(b, c, h // k, k, w // k, k)

    windows: Any = sliding_window_view
    yield "average-pool", lambda p: cells(p.value).mean(axis=(3, 5)), {}
    yield "minimum-pool", lambda p: cells(p.value).min(axis=(3, 5)), {}
    sliding: Change = lambda p: windows(p.value, (k, k), axis=(2, 3)).max((-1, -2))  # noqa: E731
    yield "maxpool-stride", sliding, {"stride": 1}


def layer_norm_changes(layer: LayerNorm) -> Changes:
    """Yield possible errors of a LayerNorm: in eps, variance or axis."""

    def normalise(p: LayerIO, ddof: int = 0, outside: bool = False, axis: int = -1) -> Any:
        mean = p.value.mean(axis, keepdims=True)
        var = p.value.var(axis, keepdims=True, ddof=ddof)
        root = np.sqrt(var) + layer.eps if outside else np.sqrt(var + layer.eps)
        return (p.value - mean) / root * p.parameters["weight"] + p.parameters["bias"]

    for eps in EPSILONS:
        if eps != layer.eps:
            yield "layernorm-eps", lambda p, e=eps: with_fields(p, eps=e), {"eps": eps}
    yield "biased-variance", lambda p: normalise(p, ddof=1), {"ddof": 1}
    yield "eps-outside-root", lambda p: normalise(p, outside=True), {}
    yield "normalised-axis", lambda p: normalise(p, axis=1), {"axis": 1}


def lstm_changes(layer: LSTM) -> Changes:
    """Yield possible errors of an LSTM: in gate order, biases or direction."""

    def reorder_gates(place: LayerIO, order: tuple[str, ...]) -> Array:
        """Read the rows of all parameters as if the gates were stored in another order."""
        at = ["ifgo".index(gate) for gate in order]
        return recompute_layer(
            place,
            **{
                leaf: np.concatenate([np.split(a, 4)[i] for i in at])
                for leaf, a in place.parameters.items()
            },
        )

    def add_forget_bias(place: LayerIO) -> Array:
        """Add 1 to the bias of the forget gate."""
        bias = place.parameters["bias_ih_l0"].copy()
        bias[layer.hidden : 2 * layer.hidden] += 1
        return recompute_layer(place, bias_ih_l0=bias)

    for order in itertools.permutations("ifgo"):
        if order != tuple("ifgo"):
            yield "gate-order", lambda p, o=order: reorder_gates(p, o), {"order": "".join(order)}
    for leaf in ("bias_ih_l0", "bias_hh_l0"):
        missing: Change = lambda p, leaf=leaf: recompute_layer(p, **{leaf: 0 * p.parameters[leaf]})  # noqa: E731
        yield "missing-bias", missing, {"bias": leaf}
    backwards: Change = lambda p: recompute_layer(p._replace(value=p.value[:, ::-1]))[:, ::-1]  # noqa: E731
    yield "reversed-sequence", backwards, {}
    yield "forget-bias", add_forget_bias, {"added": 1.0}


def attention_changes(layer: Attention) -> Changes:
    """Yield possible errors of attention: in mask, scale or number of heads."""

    def head_width(place: LayerIO) -> int:
        """Return the width of a head."""
        return int(place.value.shape[-1] // 3 // layer.heads)

    def rescale_scores(place: LayerIO, factor: float) -> Array:
        """Multiply the scores by a number, by scaling the queries."""
        value = place.value.copy()
        value[..., : value.shape[-1] // 3] *= factor
        return recompute_layer(place._replace(value=value))

    yield "attention-mask", lambda p: with_fields(p, causal=not layer.causal), {}
    yield (
        "attention-scale",
        lambda p: rescale_scores(p, head_width(p) ** 0.5),
        {"scale": "left out"},
    )
    yield "attention-scale", lambda p: rescale_scores(p, head_width(p) ** -0.5), {"scale": "1/d"}
    yield "attention-scale", lambda p: rescale_scores(p, layer.heads**-0.5), {"scale": "1/√D"}
    for heads in (1, 2, 4, 8):
        if heads != layer.heads:
            yield "attention-heads", lambda p, h=heads: with_fields(p, heads=h), {"heads": heads}


def embedding_changes(layer: Embedding) -> Changes:
    """Yield possible errors of an embedding: shifted tokens, a zero row, or a scale."""
    for by in (1, -1):
        yield (
            "shifted-tokens",
            lambda p, by=by: recompute_layer(p, weight=np.roll(p.parameters["weight"], by, 0)),
            {"by": by},
        )
    yield (
        "padding-row",
        lambda p: np.where((p.value == 0)[..., None], 0.0, recompute_layer(p)),
        {"token": 0},
    )
    yield (
        "scaled-embedding",
        lambda p: recompute_layer(p) * np.sqrt(layer.features),
        {"factor": "√D"},
    )


def mean_pool_changes(layer: MeanPool) -> Changes:
    """Yield possible errors of mean pooling: sum, last position, or maximum."""
    yield "sum-not-mean", lambda p: p.value.sum(1), {}
    yield "last-not-mean", lambda p: p.value[:, -1], {}
    yield "maximum-not-mean", lambda p: p.value.max(1), {}


CHANGES: dict[type[Layer], Callable[[Any], Changes]] = {
    ReLU: relu_changes,
    Tanh: tanh_changes,
    Conv2d: conv_changes,
    MaxPool2d: pool_changes,
    LayerNorm: layer_norm_changes,
    LSTM: lstm_changes,
    RecurrentLayer: recurrent_changes,
    Attention: attention_changes,
    Embedding: embedding_changes,
    MeanPool: mean_pool_changes,
}
