"""Hypotheses about each kind of layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.layers import GELU, Conv2d, LayerNorm, MaxPool2d, MeanPool, ReLU, Tanh
from dualml.backend.reference.layers import PAIRS
from dualml.parity.causes.mutation import Transform
from dualml.parity.finder.causes.base import HALVES
from dualml.parity.finder.context import LayerIO
from dualml.parity.transforms import apply_transform, round_to_half

Array = NDArray[Any]
#: Changed output of a layer, from its input and parameters.
Change = Callable[[LayerIO], Array]
Changes = Iterator[tuple[str, Change, dict[str, Any]]]


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


EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
#: Layer → what may stand in its place: cause, activation and details.
OTHER_ACTIVATIONS: dict[type[Layer], tuple[tuple[str, Transform, dict[str, Any]], ...]] = {
    ReLU: (
        *(("leaky-relu", ("leaky_relu", c), {"slope": c}) for c in (0.01, 0.1, 0.2, 0.25)),
        ("gelu", ("gelu",), {"form": "erf"}),
        ("gelu", ("gelu_tanh",), {"form": "tanh"}),
        ("other-activation", ("silu",), {"is": "SiLU"}),
        ("other-activation", ("elu",), {"is": "ELU"}),
        ("other-activation", ("relu6",), {"is": "ReLU6"}),
        ("other-activation", ("abs",), {"is": "abs"}),
        ("other-activation", ("tanh",), {"is": "tanh"}),
    ),
    Tanh: (
        ("other-activation", ("relu",), {"is": "ReLU"}),
        ("other-activation", ("sigmoid",), {"is": "sigmoid"}),
        ("other-activation", ("hardtanh",), {"is": "hardtanh"}),
    ),
    GELU: (
        ("gelu-form", ("gelu_tanh",), {"form": "tanh"}),
        ("gelu-form", ("quick_gelu",), {"form": "1.702"}),
        ("other-activation", ("relu",), {"is": "ReLU"}),
        ("other-activation", ("silu",), {"is": "SiLU"}),
    ),
}


def activation_changes(layer: Layer) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of an
    activation: another one, or an approximation."""
    for cause, activation, detail in OTHER_ACTIVATIONS[type(layer)]:
        yield cause, lambda p, t=activation: apply_transform(t, p.value), detail
    if isinstance(layer, Tanh):
        yield "tanh-approximation", lambda p: rational_tanh(p.value), {}


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
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of a
    convolution: a flipped kernel, or another padding."""
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
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of max
    pooling: average, minimum, or stride 1."""
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
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of a
    LayerNorm: in eps, variance or axis."""

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


def mean_pool_changes(layer: MeanPool) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of mean
    pooling: sum, last position, or maximum."""
    yield "sum-not-mean", lambda p: p.value.sum(1), {}
    yield "last-not-mean", lambda p: p.value[:, -1], {}
    yield "maximum-not-mean", lambda p: p.value.max(1), {}


CHANGES: dict[type[Layer], Callable[[Any], Changes]] = {
    **dict.fromkeys(OTHER_ACTIVATIONS, activation_changes),
    Conv2d: conv_changes,
    MaxPool2d: pool_changes,
    LayerNorm: layer_norm_changes,
    MeanPool: mean_pool_changes,
}
