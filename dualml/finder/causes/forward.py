"""What a layer can do instead: the one whose output is first out of the rule, computed otherwise.

What goes into it is what the referee has: everything before it agrees.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.finder.causes.base import Arrays, Guess, Suspect, fit, narrow, rounded
from dualml.finder.scene import Place
from dualml.model.layers import (
    LSTM,
    Attention,
    Conv2d,
    Dropout,
    Embedding,
    LayerNorm,
    MaxPool2d,
    MeanPool,
    ReLU,
    Tanh,
)
from dualml.reference.layers import PAIRS

Change = Callable[[Place], NDArray[Any]]
EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def guesses(suspect: Suspect) -> Iterator[Guess]:
    layer = dict(suspect.scene.spec.layers).get(suspect.tensor)
    if layer is None:
        return
    own = CHANGES.get(type(layer))
    for cause, change, detail in itertools.chain(own(layer) if own else (), common(layer)):
        yield Guess(cause, only(suspect, change), detail)
    yield from stale(suspect)
    yield from fitted(suspect)
    yield from narrow(suspect, [suspect.tensor])
    if suspect.scene.spec.dropouts:
        yield from dropout(suspect)


def place_of(suspect: Suspect, step: int) -> Place:
    places = suspect.scene.places(step, suspect.scene.batch(step))
    return next(place for place in places if place.name == suspect.tensor)


def only(suspect: Suspect, change: Change) -> Callable[[int, int], Arrays]:
    """The output of the first layer that is off: those after it follow from it."""

    def predict(step: int, rank: int) -> Arrays:
        place = place_of(suspect, step)
        try:
            with np.errstate(all="ignore"):
                return {suspect.tensor: change(place)}
        except ValueError:  # shapes for which this change makes no sense
            return {}

    return predict


def again(place: Place, **own: NDArray[Any]) -> NDArray[Any]:
    """The layer with some of its parameters replaced."""
    return PAIRS[type(place.layer)][0](place.layer, place.value, {**place.own, **own})[0]


def altered(place: Place, **fields: Any) -> NDArray[Any]:
    """The layer with some of its fields replaced."""
    layer = replace(place.layer, **fields)
    return PAIRS[type(layer)][0](layer, place.value, place.own)[0]


Told = Iterator[tuple[str, Change, dict[str, Any]]]


def common(layer: Any) -> Told:
    """What can happen to any layer."""
    leaves = list(layer.parameters())
    if "bias" in leaves:
        yield "missing-bias", lambda p: again(p, bias=np.zeros_like(p.own["bias"])), {}
        yield "doubled-bias", lambda p: again(p, bias=2 * p.own["bias"]), {}
    if "weight" in leaves:
        yield "transposed-weight", lambda p: again(p, weight=transposed(p.own["weight"])), {}
    for kind in ("float16", "bfloat16") if type(layer) in PAIRS else ():
        yield (
            "half-precision",
            lambda p, kind=kind: PAIRS[type(p.layer)][0](
                p.layer,
                rounded(p.value, kind) if p.value.dtype.kind == "f" else p.value,
                {n: rounded(a, kind) for n, a in p.own.items()},
            )[0],
            {"type": kind, "of": "inputs and weights"},
        )
    yield "skipped-layer", lambda p: p.value, {}


def transposed(weight: NDArray[Any]) -> NDArray[Any]:
    """The last two axes swapped, or the same numbers read in that order."""
    turned = weight.swapaxes(-1, -2)
    return turned if turned.shape == weight.shape else turned.reshape(weight.shape)


def of_relu(layer: ReLU) -> Told:
    for slope in (0.01, 0.1, 0.2, 0.25):
        change: Change = lambda p, s=slope: np.where(p.value > 0, p.value, s * p.value)  # noqa: E731
        yield "leaky-relu", change, {"slope": slope}
    yield "gelu", lambda p: gelu(p.value), {"form": "erf"}
    yield "gelu", lambda p: gelu_tanh(p.value), {"form": "tanh"}
    yield "other-activation", lambda p: p.value / (1 + np.exp(-p.value)), {"is": "SiLU"}
    yield (
        "other-activation",
        lambda p: np.where(p.value > 0, p.value, np.expm1(p.value)),
        {"is": "ELU"},
    )
    yield "other-activation", lambda p: np.clip(p.value, 0, 6), {"is": "ReLU6"}
    yield "other-activation", lambda p: np.abs(p.value), {"is": "abs"}
    yield "other-activation", lambda p: np.tanh(p.value), {"is": "tanh"}


def of_tanh(layer: Tanh) -> Told:
    yield "other-activation", lambda p: np.maximum(p.value, 0), {"is": "ReLU"}
    yield "other-activation", lambda p: 1 / (1 + np.exp(-p.value)), {"is": "sigmoid"}
    yield "other-activation", lambda p: np.clip(p.value, -1, 1), {"is": "hardtanh"}
    yield "tanh-approximation", lambda p: rational_tanh(p.value), {}


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    from scipy.special import erf

    out: NDArray[Any] = x * 0.5 * (1 + erf(x / np.sqrt(2)))
    return out


def gelu_tanh(x: NDArray[Any]) -> NDArray[Any]:
    out: NDArray[Any] = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return out


def rational_tanh(x: NDArray[Any]) -> NDArray[Any]:
    """Lambert's continued fraction to x⁷, which kernels use for speed."""
    s = x * x
    up = x * (135135 + s * (17325 + s * (378 + s)))
    out: NDArray[Any] = np.clip(up / (135135 + s * (62370 + s * (3150 + s * 28))), -1, 1)
    return out


def of_conv(layer: Conv2d) -> Told:
    yield "flipped-kernel", lambda p: again(p, weight=p.own["weight"][..., ::-1, ::-1]), {}
    for padding in {0, layer.kernel // 2, layer.kernel - 1} - {layer.padding}:
        yield "conv-padding", lambda p, n=padding: altered(p, padding=n), {"padding": padding}
    for mode in ("edge", "reflect", "wrap"):
        yield "pad-mode", lambda p, mode=mode: padded(p, mode), {"mode": mode}
    for by in (1, -1):
        yield "shifted-padding", lambda p, by=by: shifted(p, by), {"by": by}


def padded(place: Place, mode: str) -> NDArray[Any]:
    """The convolution with another border."""
    layer: Any = place.layer
    n = layer.padding
    wide = np.pad(place.value, ((0, 0), (0, 0), (n, n), (n, n)), mode=mode)  # type: ignore[call-overload]
    return PAIRS[Conv2d][0](replace(layer, padding=0), wide, place.own)[0]


def shifted(place: Place, by: int) -> NDArray[Any]:
    """The border put more to one side, as 'same' does with what cannot be halved."""
    layer: Any = place.layer
    n = layer.padding
    if n == 0:
        raise ValueError("no border to move")
    a, b = (n + by, n - by)
    wide = np.pad(place.value, ((0, 0), (0, 0), (a, b), (a, b)))
    return PAIRS[Conv2d][0](replace(layer, padding=0), wide, place.own)[0]


def of_pool(layer: MaxPool2d) -> Told:
    k = layer.kernel
    yield "average-pool", lambda p: cells(p.value, k).mean(axis=(3, 5)), {}
    yield "minimum-pool", lambda p: cells(p.value, k).min(axis=(3, 5)), {}
    yield "maxpool-stride", lambda p: sliding(p.value, k), {"stride": 1}


def cells(x: NDArray[Any], k: int) -> NDArray[Any]:
    b, c, h, w = x.shape
    return x[:, :, : h // k * k, : w // k * k].reshape(b, c, h // k, k, w // k, k)


def sliding(x: NDArray[Any], k: int) -> NDArray[Any]:
    windows: Any = np.lib.stride_tricks.sliding_window_view
    out: NDArray[Any] = windows(x, (k, k), axis=(2, 3)).max((-1, -2))
    return out


def of_norm(layer: LayerNorm) -> Told:
    for eps in EPSILONS:
        if eps != layer.eps:
            yield "layernorm-eps", lambda p, e=eps: altered(p, eps=e), {"eps": eps}
    yield "biased-variance", lambda p: normalised(p, ddof=1), {"ddof": 1}
    yield "eps-outside-root", lambda p: normalised(p, outside=True), {}
    yield "normalised-axis", lambda p: normalised(p, axis=1), {"axis": 1}


def normalised(place: Place, ddof: int = 0, outside: bool = False, axis: int = -1) -> NDArray[Any]:
    x, layer = place.value, place.layer
    eps: float = layer.eps  # type: ignore[attr-defined]
    mean, var = x.mean(axis, keepdims=True), x.var(axis, keepdims=True, ddof=ddof)
    root = np.sqrt(var) + eps if outside else np.sqrt(var + eps)
    out: NDArray[Any] = (x - mean) / root * place.own["weight"] + place.own["bias"]
    return out


def of_lstm(layer: LSTM) -> Told:
    for order in itertools.permutations("ifgo"):
        if order != tuple("ifgo"):
            yield (
                "gate-order",
                lambda p, o=order: again(p, **gates(p, o)),
                {"order": "".join(order)},
            )
    for leaf in ("bias_ih_l0", "bias_hh_l0"):
        if leaf in layer.parameters():
            change: Change = lambda p, leaf=leaf: again(p, **{leaf: 0 * p.own[leaf]})  # noqa: E731
            yield "missing-bias", change, {"bias": leaf}
    yield "reversed-sequence", lambda p: again_reversed(p), {}
    bias = next((leaf for leaf in layer.parameters() if leaf.startswith("bias")), None)
    if bias:
        yield "forget-bias", lambda p, leaf=bias: forget(p, leaf), {"added": 1.0}


def gates(place: Place, order: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The rows of all parameters read as if the gates stood in another order."""
    at = ["ifgo".index(gate) for gate in order]
    return {leaf: np.concatenate([np.split(a, 4)[i] for i in at]) for leaf, a in place.own.items()}


def forget(place: Place, leaf: str) -> NDArray[Any]:
    bias = place.own[leaf].copy()
    n = len(bias) // 4
    bias[n : 2 * n] += 1
    return again(place, **{leaf: bias})


def again_reversed(place: Place) -> NDArray[Any]:
    turned = place._replace(value=place.value[:, ::-1])
    return again(turned)[:, ::-1]


def of_attention(layer: Attention) -> Told:
    yield "attention-mask", lambda p: altered(p, causal=not layer.causal), {}

    def width(p: Place) -> int:
        return int(p.value.shape[-1] // 3 // layer.heads)

    for name, factor in (("left out", lambda p: np.sqrt(width(p))),
                         ("1/d", lambda p: 1 / np.sqrt(width(p))),
                         ("1/√D", lambda p: 1 / np.sqrt(layer.heads))):  # fmt: skip
        yield "attention-scale", lambda p, f=factor: rescaled(p, f(p)), {"scale": name}
    for heads in (1, 2, 4, 8):
        if heads != layer.heads:
            yield "attention-heads", lambda p, h=heads: altered(p, heads=h), {"heads": heads}


def rescaled(place: Place, factor: float) -> NDArray[Any]:
    """Scores times a number: so much larger queries."""
    value = place.value.copy()
    value[..., : value.shape[-1] // 3] *= factor
    return again(place._replace(value=value))


def of_embedding(layer: Embedding) -> Told:
    for by in (1, -1):
        yield (
            "shifted-tokens",
            lambda p, by=by: again(p, weight=np.roll(p.own["weight"], by, 0)),
            {"by": by},
        )
    yield "padding-row", lambda p: np.where((p.value == 0)[..., None], 0.0, again(p)), {"token": 0}
    yield "scaled-embedding", lambda p: again(p) * np.sqrt(layer.features), {"factor": "√D"}


def of_mean(layer: MeanPool) -> Told:
    yield "sum-not-mean", lambda p: p.value.sum(1), {}
    yield "last-not-mean", lambda p: p.value[:, -1], {}
    yield "maximum-not-mean", lambda p: p.value.max(1), {}


CHANGES: dict[type, Callable[[Any], Told]] = {
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


def stale(suspect: Suspect) -> Iterator[Guess]:
    """The layer with the weights it had before the last update, or at the start."""
    scene = suspect.scene
    for name, back in (("the update before", 1), ("the start", None)):

        def predict(step: int, rank: int, back: int | None = back) -> Arrays:
            old = step - 1 if back else min(scene.states)
            if old not in scene.states or old == step:
                return {}
            place = place_of(suspect, step)
            if not place.own:
                return {}
            before = scene.weights(old)
            own = {leaf: before[f"{place.name}.{leaf}"] for leaf in place.own}
            return {place.name: again(place, **own)}

        yield Guess("stale-parameters", predict, {"of": name})


def fitted(suspect: Suspect) -> Iterator[Guess]:
    """The output times a number."""
    pairs = []
    for step, rank in suspect.looks:
        seen, right = (
            suspect.seen(step, rank)[suspect.tensor],
            suspect.right(step, rank)[suspect.tensor],
        )
        if seen.shape != right.shape:
            return
        pairs.append((seen, right))
    factor = fit(pairs)
    yield Guess(
        "scaled-output", only(suspect, lambda p: factor * p.output), {"factor": factor}, free=1
    )


def dropout(suspect: Suspect) -> Iterator[Guess]:
    """Dropout where there should be none: zeros, and the rest larger."""
    layer = dict(suspect.scene.spec.layers)[suspect.tensor]
    if not isinstance(layer, Dropout):
        return

    def predict(step: int, rank: int) -> Arrays:
        place, seen = place_of(suspect, step), suspect.seen(step, rank)[suspect.tensor]
        if seen.shape != place.output.shape:
            return {}
        kept = seen != 0
        share = float(kept.mean()) or 1.0
        return {place.name: np.where(kept, place.value / share, 0.0)}

    yield Guess("train-mode", predict, {"layer": suspect.tensor}, free=1)
