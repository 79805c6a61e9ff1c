"""Hypotheses about the layers of decoders."""

from __future__ import annotations

import numpy as np

from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU
from dualml.backend.reference.recurrent import sigmoid
from dualml.parity.finder.causes.layers import (
    CHANGES,
    EPSILONS,
    Array,
    Change,
    Changes,
    recompute_layer,
    with_fields,
)
from dualml.parity.finder.context import LayerIO
from dualml.parity.transforms import apply_transform

#: Common bases of rotary position embeddings.
BASES = (1_000.0, 10_000.0, 500_000.0, 1_000_000.0)


def rms_norm_changes(layer: RMSNorm) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of an
    RMSNorm: in eps, gain, centring or root."""

    def centred_norm(place: LayerIO) -> Array:
        """Subtract the mean first, like LayerNorm without its bias."""
        return recompute_layer(
            place._replace(value=place.value - place.value.mean(-1, keepdims=True))
        )

    def eps_outside_root(place: LayerIO) -> Array:
        """Add eps outside the square root."""
        size = np.sqrt(np.square(place.value).mean(-1, keepdims=True)) + layer.eps
        return np.asarray(place.value / size * place.parameters["weight"])

    def divide_by_length(place: LayerIO) -> Array:
        """Divide by the length of the vector, which is √D times its root mean square."""
        return np.asarray(recompute_layer(place) / np.sqrt(layer.features))

    for eps in EPSILONS:
        if eps != layer.eps:
            yield "rmsnorm-eps", lambda p, e=eps: with_fields(p, eps=e), {"eps": eps}
    yield (
        "missing-gain",
        lambda p: recompute_layer(p, weight=np.ones_like(p.parameters["weight"])),
        {},
    )
    yield "shifted-gain", lambda p: recompute_layer(p, weight=1 + p.parameters["weight"]), {}
    yield "centred-norm", centred_norm, {}
    yield "rmsnorm-root", eps_outside_root, {}
    yield "length-not-mean", divide_by_length, {}


def swiglu_changes(layer: SwiGLU) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of a
    SwiGLU: swapped or interleaved halves, or another activation."""

    def halves(place: LayerIO) -> tuple[Array, Array]:
        gate, up = np.split(place.value, 2, -1)
        return gate, up

    def swap_halves(place: LayerIO) -> Array:
        gate, up = halves(place)
        return np.asarray(up * sigmoid(up) * gate)

    def other_gate(place: LayerIO, kind: str) -> Array:
        gate, up = halves(place)
        return np.asarray(apply_transform((GATES[kind],), gate) * up)

    def interleaved_gate(place: LayerIO) -> Array:
        """Take gates and values alternately instead of from two halves."""
        gate, up = place.value[..., ::2], place.value[..., 1::2]
        return np.asarray(gate * sigmoid(gate) * up)

    yield "swapped-gate", swap_halves, {}
    for kind in GATES:
        other: Change = lambda p, kind=kind: other_gate(p, kind)  # noqa: E731
        yield "other-gate", other, {"is": kind}
    yield "woven-gate", interleaved_gate, {}


#: Activations of a gate instead of SiLU (Shazeer 2020, eq. 3 to 5).
GATES = {
    "GELU": "gelu",
    "GELU, tanh": "gelu_tanh",
    "ReLU": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "none": "identity",
}


def grouped_attention_changes(layer: GroupedAttention) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of the
    rotary embedding in grouped-query attention; nothing if the layer has none."""

    def rotate_neighbours(place: LayerIO) -> Array:
        """Rotate neighbouring entries as pairs, as Su et al. 2021 write them."""
        heads = place.value.reshape(*place.value.shape[:-1], -1, layer.width)
        own = heads.reshape(
            *heads.shape[:-2], layer.kv_heads, layer.heads_per_group + 2, layer.width
        )
        order = np.r_[0 : layer.width : 2, 1 : layer.width : 2]
        own = np.concatenate([own[..., :-1, order], own[..., -1:, :]], -2)  # values are not rotated
        return recompute_layer(place._replace(value=own.reshape(place.value.shape)))

    if not layer.base:
        return
    yield "missing-rotation", lambda p: with_fields(p, base=0.0), {}
    for base in BASES:
        if base != layer.base:
            yield "rotary-base", lambda p, b=base: with_fields(p, base=b), {"base": base}
    yield "rotary-pairs", rotate_neighbours, {}


CHANGES.update(
    {
        RMSNorm: rms_norm_changes,
        SwiGLU: swiglu_changes,
        GroupedAttention: grouped_attention_changes,
    }
)
