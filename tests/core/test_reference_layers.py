"""Sequence layers: the reference's backward passes, shapes, descriptions, and initial weights."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from conformance.layer_cases import BATCH, CASES, case, drawn, samples, weights

from dualml.algorithms.model import TEXT_ZOO, ZOO, ModelSpec, initial_weights, model
from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
    LAYERS,
    LSTM,
    Attention,
    Bias,
    Branch,
    Conv2d,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Merge,
    Position,
    ReLU,
    Rows,
)
from dualml.algorithms.model.spec import LOSSES
from dualml.backend.reference.losses import LOSSES as OF_LOGITS
from dualml.backend.reference.model import Model, backward, forward
from dualml.common.errors import UserError

# --- the referee ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_derivative_of_the_loss(name: str, loss: str) -> None:
    """Gradients agree with central differences for h = 1e-6: errors of h², and the loss's rounding
    1e-16 over h."""
    spec = CASES[name]
    start = {n: w.astype(np.float64) for n, w in weights(spec).items()}
    x, y = samples(spec)
    dropped = drawn(spec, np.arange(BATCH))
    value, gradients = Model(spec, start).loss_and_gradients(x, y, loss, dropped)
    assert list(gradients) == list(spec.parameters())  # running statistics have none
    rounding = 1e-8 * max(1, value)
    h = 1e-6
    for key in gradients:
        w = start[key]
        for at in list(np.ndindex(w.shape))[:: max(1, w.size // 10)]:
            values = []
            for sign in (1, -1):
                moved = {n: v.copy() for n, v in start.items()}
                moved[key][at] += sign * h
                values.append(Model(spec, moved).loss_and_gradients(x, y, loss, dropped)[0])
            slope = (values[0] - values[1]) / (2 * h)
            assert gradients[key][at] == pytest.approx(slope, rel=1e-6, abs=rounding), (key, at)


def test_a_part_of_a_model_gives_the_gradient_of_what_it_was_given() -> None:
    """A part of a model returns the gradient of its inputs: from inside one residual connection to
    inside the next, a stack of two."""
    spec = model("vit")
    start = {n: w.astype(np.float64) for n, w in initial_weights(spec, 0).items()}
    x = np.random.default_rng(0).normal(size=(3, 1, 28, 28))
    cuts = (0, 5, 11, len(spec.layers))
    values, tapes = (x,), []
    for first, last in pairwise(cuts):
        values, tape = forward(spec.layers[first:last], start, values)
        tapes.append(tape)
    whole = Model(spec, start)
    np.testing.assert_array_equal(values[-1], whole.forward(x)[0])
    labels = np.array([1, 2, 3])
    gradients, found = (OF_LOGITS["cross_entropy"](values[-1], labels)[1],), {}
    for tape in reversed(tapes):
        gradients, own = backward(tape, start, gradients)
        found |= own
    assert gradients[0].shape == x.shape
    for name, g in whole.loss_and_gradients(x, labels, "cross_entropy")[1].items():
        np.testing.assert_array_equal(found[name], g)


def test_an_lstm_is_its_equations() -> None:
    layer = LSTM(1, 1)
    params = {
        "l.weight_ih_l0": np.array([[1.0], [2.0], [3.0], [4.0]]),
        "l.weight_hh_l0": np.array([[0.1], [0.2], [0.3], [0.4]]),
        "l.bias_ih_l0": np.array([0.5, 0.6, 0.7, 0.8]),
        "l.bias_hh_l0": np.array([-0.1, -0.2, -0.3, -0.4]),
    }
    (y,), _ = forward([("l", layer)], params, (np.array([[[0.3], [-0.9]]]),))
    h = c = 0.0
    for t, x in enumerate((0.3, -0.9)):
        i, f, o = (
            1 / (1 + math.exp(-(w * x + u * h + b)))
            for w, u, b in ((1, 0.1, 0.4), (2, 0.2, 0.4), (4, 0.4, 0.4))
        )
        c = f * c + i * math.tanh(3 * x + 0.3 * h + 0.4)
        h = o * math.tanh(c)
        assert y[0, t, 0] == pytest.approx(h, rel=1e-13)


def test_attention_is_its_equation() -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 12))
    q, k, v = (x[0, :, i : i + 4][:, 2:] for i in (0, 4, 8))  # of the second of two heads
    for causal in (False, True):
        (y,), _ = forward([("a", Attention(2, causal))], {}, (x,))
        for t in range(3):
            seen = t + 1 if causal else 3
            e = np.exp(k[:seen] @ q[t] / np.sqrt(2))
            np.testing.assert_allclose(y[0, t, 2:], e @ v[:seen] / e.sum(), rtol=1e-13)


def test_tokens_without_a_row_are_zeros() -> None:
    table = {"e.weight": np.arange(1.0, 7.0).reshape(3, 2)}
    (y,), tape = forward([("e", Embedding(3, 2, first=4))], table, (np.array([[3, 4, 6, 7]]),))
    assert y.tolist() == [[[0, 0], [1, 2], [5, 6], [0, 0]]]
    _, found = backward(tape, table, (np.ones((1, 4, 2)),))
    assert found["e.weight"].tolist() == [[1, 1], [0, 0], [1, 1]]


def test_every_position_counts_as_a_sample() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 3, 4))
    labels = np.array([[0, 1, 2], [3, 0, 1]])
    for loss in OF_LOGITS.values():
        value, gradient = loss(logits, labels)
        flat, wanted = loss(logits.reshape(6, 4), labels.ravel())
        assert value == flat
        np.testing.assert_array_equal(gradient.reshape(6, 4), wanted)


# --- shapes and errors ----------------------------------------------------------------------------


def test_branches_are_counted() -> None:
    spec = CASES["branches"]
    assert list(spec.open_branches().values()) == [0, 1, 1, 2, 2, 1, 1, 0, 0]
    assert model("vit").open_branches()["qkv"] == 1
    assert {stack[0] for stack in model("vit").stack_shapes().values() if len(stack) == 2} == {
        (28, 64)
    }


@pytest.mark.parametrize(
    ("shape", "layers", "words"),
    [
        ((4,), (Merge(),), "'l0': Merge has no Branch"),
        ((4,), (Branch(), ReLU()), "Branch has no Merge"),
        ((4,), (Branch(), Merge(), Merge()), "'l2': Merge has no Branch"),
        ((4,), (Branch(), Linear(4, 3), Merge()), r"'l2': Merge adds equal .* \(4,\) and \(3,\)"),
        ((4,), (ReLU(), Embedding(3, 2)), "'l1': tokens only come in first"),
        ((4, 5), (Linear(4, 3),), r"Linear takes \(…, 4\) per sample; received \(4, 5\)"),
        ((4, 5), (LSTM(4, 3),), r"LSTM takes \(T, 4\)"),
        ((4, 5), (LayerNorm(4),), r"LayerNorm takes \(…, 4\)"),
        ((4, 5), (Position(5, 4),), r"Position takes \(5, 4\)"),
        ((4, 8), (Attention(2),), r"Attention takes \(T, a multiple of 6\)"),
        ((4, 5), (RMSNorm(4),), r"RMSNorm takes \(…, 4\)"),
        ((4, 5), (SwiGLU(),), r"SwiGLU takes \(…, an even number\)"),
        ((4, 12), (GroupedAttention(2, 1, 4, 4),), r"GroupedAttention takes \(4, 16\)"),
        ((4, 16), (GroupedAttention(3, 2, 2, 4),), "3 heads make no 2 equal groups"),
        (
            (6,),
            (Embedding(9, 4), Tied(4, 9, of="l7")),
            "'l1': its parameters .* of 'l7', which is no",
        ),
        (
            (6,),
            (Embedding(9, 4), Tied(4, 8, of="l0")),
            "of 'l0', which is no embedding of that shape",
        ),
        ((4, 5), (Bias(4),), "Bias takes"),
        ((2, 4, 5), (Bias(5),), "Bias takes"),
        ((2, 4, 5), (Rows(),), r"Rows takes \(1, H, W\)"),
        ((4,), (MeanPool(),), r"MeanPool takes \(T, D\)"),
        ((4,), (Dropout(1.0),), r"rate must be in \[0, 1\); received 1.0"),
        ((4,), (Dropout(-0.1),), "rate must be"),
        ((1, 4, 4), (Conv2d(1, 1, 5),), "kernel 5 takes larger images"),
        ((1, 4, 4), (MaxPool2d(5),), "MaxPool2d takes"),
    ],
)
def test_what_does_not_fit_is_named(
    shape: tuple[int, ...], layers: tuple[Layer, ...], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        case(shape, *layers)


def test_text_models_have_the_sizes_of_the_data() -> None:
    for name in TEXT_ZOO:
        spec = model(name, words=50, length=9)
        assert spec.takes_tokens
        assert spec.input_shape == (9,)
        assert list(spec.shapes().values())[-1] == (9, 50)
    assert model("rnn_lm_dropout").dropout_names == ("dropout1", "dropout2")
    assert not model("vit").takes_tokens
    with pytest.raises(UserError, match=r"lenet.* takes images; words are of text"):
        model("lenet", words=50)
    with pytest.raises(UserError, match="did you mean 'rnn_lm'"):
        model("rnn_ln")


# --- descriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*CASES.values(), *map(model, [*ZOO, *TEXT_ZOO])])
def test_a_description_is_read_back(spec: ModelSpec) -> None:
    told = json.loads(json.dumps(spec.describe()))
    assert ModelSpec.restore(told) == spec


@pytest.mark.parametrize(
    ("name", "described", "drawn"),
    [
        ("lenet", "d2b0f46a131a", "4a10016f9793"),
        ("mlp", "9b7ea8bd2260", "acabee1bdebe"),
        ("softmax", "2a1007db75ef", "421006947551"),
    ],
)
def test_the_first_models_keep_their_description_and_weights(
    name: str, described: str, drawn: str
) -> None:
    """The first models keep their description and weights, as recorded in plans of older runs."""
    spec = model(name)
    text = json.dumps(spec.describe(), sort_keys=True)
    numbers = b"".join(w.tobytes() for w in initial_weights(spec, 0).values())
    assert hashlib.sha256(text.encode()).hexdigest()[:12] == described
    assert hashlib.sha256(numbers).hexdigest()[:12] == drawn


def test_defaults_are_left_out_but_where_they_were_always_told() -> None:
    assert Linear(2, 3).describe() == {"type": "Linear", "inputs": 2, "outputs": 3}
    assert Linear(2, 3, bias=False).describe()["bias"] is False
    assert Conv2d(1, 2, 3).describe()["padding"] == 0
    assert "eps" not in LayerNorm(4).describe()
    told = {name for name, layer in LAYERS.items() if any(f.metadata for f in fields(layer))}
    assert told == {"Conv2d"}


# --- initial weights ------------------------------------------------------------------------------


def test_initial_weights_follow_their_laws() -> None:
    text, vit = (initial_weights(model(n), 0) for n in ("rnn_lm", "vit"))
    assert text["embedding.weight"].std() == pytest.approx(0.1, rel=0.02)
    for leaf in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        largest = np.abs(text[f"lstm.{leaf}"]).max()
        assert 0.95 / math.sqrt(128) < largest <= 1 / math.sqrt(128)
    assert vit["position.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert (vit["ln1.weight"] == 1).all()
    assert (vit["ln1.bias"] == 0).all()
    assert {w.dtype for w in (*text.values(), *vit.values())} == {np.dtype(np.float32)}
    biased = initial_weights(CASES["bias"], 0)
    assert (biased["l1.bias"] == 0).all()
