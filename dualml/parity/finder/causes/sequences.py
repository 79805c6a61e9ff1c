"""Hypotheses about the layers of sequences: recurrent ones, attention and embeddings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dualml.algorithms.model.layers import LSTM, Attention, Embedding
from dualml.algorithms.model.recurrent import RecurrentLayer
from dualml.backend.reference.layers import PAIRS
from dualml.parity.finder.causes.layers import (
    CHANGES,
    Array,
    Change,
    Changes,
    rational_tanh,
    recompute_layer,
    with_fields,
)
from dualml.parity.finder.context import LayerIO


def lstm_changes(layer: LSTM) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of an
    LSTM: in gate order, biases or direction."""

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


def recurrent_changes(layer: RecurrentLayer) -> Changes:
    """Yield at most one (cause, changed layer, details), as `alternatives` does: a recurrent layer
    whose tanh is approximated; nothing without a tanh."""
    forward: Any = PAIRS[type(layer)][0]
    if getattr(layer, "nonlinearity", "tanh") == "tanh":
        yield (
            "tanh-approximation",
            lambda p: forward(p.layer, p.value, p.parameters, rational_tanh)[0],
            {},
        )


def attention_changes(layer: Attention) -> Changes:
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of
    attention: in mask, scale or number of heads."""

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
    """Yield (cause, changed layer, details), as `alternatives` does, for possible errors of an
    embedding: shifted tokens, a zero row, or a scale."""
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


CHANGES[LSTM] = lstm_changes
CHANGES[RecurrentLayer] = recurrent_changes
CHANGES[Attention] = attention_changes
CHANGES[Embedding] = embedding_changes
