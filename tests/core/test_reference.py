"""The reference's backward passes against finite differences, and its losses against their
definitions."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.algorithms.model import ZOO, initial_weights, model
from dualml.algorithms.model.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Tanh
from dualml.algorithms.model.spec import ModelSpec
from dualml.backend.reference.losses import LOSSES
from dualml.backend.reference.model import Model
from dualml.common.errors import UserError

SMALL = {
    "linear": ModelSpec("s", (5,), (("fc", Linear(5, 3)),)),
    "conv": ModelSpec("s", (2, 6, 5), (("conv", Conv2d(2, 3, 3, padding=1)), ("f", Flatten()))),
    "conv-unpadded": ModelSpec("s", (2, 6, 5), (("conv", Conv2d(2, 3, 3)), ("f", Flatten()))),
    "pool": ModelSpec(
        "s",
        (1, 7, 6),
        (
            ("conv", Conv2d(1, 2, 2)),
            ("pool", MaxPool2d(2)),
            ("f", Flatten()),
            ("fc", Linear(12, 3)),
        ),
    ),
    "relu": ModelSpec("s", (4,), (("a", Linear(4, 6)), ("r", ReLU()), ("b", Linear(6, 3)))),
    "tanh": ModelSpec("s", (4,), (("a", Linear(4, 6)), ("t", Tanh()), ("b", Linear(6, 3)))),
    "two-convs": ModelSpec(
        "s",
        (1, 8, 8),
        (
            ("c1", Conv2d(1, 2, 3, padding=1)),
            ("t1", Tanh()),
            ("p", MaxPool2d(2)),
            ("c2", Conv2d(2, 3, 3)),
            ("f", Flatten()),
        ),
    ),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SMALL)
def test_gradient_is_the_derivative_of_the_loss(name: str, loss: str) -> None:
    spec = SMALL[name]
    rng = np.random.default_rng(3)
    weights = {n: rng.normal(size=s) for n, s in spec.parameters().items()}
    x, y = rng.normal(size=(4, *spec.input_shape)), rng.integers(0, 3, 4)
    _, gradients = Model(spec, weights).loss_and_gradients(x, y, loss)
    h = 1e-6
    for key, w in weights.items():
        for at in list(np.ndindex(w.shape))[:: max(1, w.size // 12)]:
            values = []
            for sign in (1, -1):
                moved = {n: v.copy() for n, v in weights.items()}
                moved[key][at] += sign * h
                values.append(Model(spec, moved).loss_and_gradients(x, y, loss)[0])
            slope = (values[0] - values[1]) / (2 * h)
            assert gradients[key][at] == pytest.approx(slope, rel=1e-7, abs=2e-8), (key, at)


def test_convolution_is_the_sum_over_the_window() -> None:
    spec = SMALL["conv"]
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=s) for n, s in spec.parameters().items()}
    x = rng.normal(size=(2, 2, 6, 5))
    _, tape = Model(spec, weights).forward(x)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    window = padded[1, :, 2:5, 3:6]
    want = (window * weights["conv.weight"][2]).sum() + weights["conv.bias"][2]
    assert tape[0][2][1, 2, 2, 3] == pytest.approx(want, rel=1e-14)


def test_losses_are_their_definitions() -> None:
    logits, labels = np.array([[0.0, np.log(3.0)], [np.log(4.0), 0.0]]), np.array([1, 1])
    assert LOSSES["cross_entropy"](logits, labels)[0] == pytest.approx(
        -(np.log(3 / 4) + np.log(1 / 5)) / 2
    )
    assert LOSSES["mse"](np.array([[1.0, 3.0]]), np.array([1]))[0] == pytest.approx((1 + 4) / 2)


def test_cross_entropy_survives_large_logits() -> None:
    loss, gradient = LOSSES["cross_entropy"](np.array([[1e4, 0.0]]), np.array([1]))
    assert loss == pytest.approx(1e4)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ZOO)
def test_zoo_models_take_mnist_and_give_ten_classes(name: str) -> None:
    spec = model(name)
    assert spec.shapes()[spec.layers[-1][0]] == (10,)
    assert ModelSpec.restore(spec.describe()) == spec
    logits, _ = Model(spec, initial_weights(spec, 0)).forward(np.zeros((2, 1, 28, 28)))
    assert logits.shape == (2, 10)


def test_the_courses_lenet_has_its_parameters() -> None:
    assert sum(int(np.prod(s)) for s in model("lenet").parameters().values()) == 51_902


def test_initial_weights_depend_on_seed_and_tensor_only() -> None:
    spec = model("lenet")
    one, same, other = (initial_weights(spec, seed) for seed in (0, 0, 1))
    for name, w in one.items():
        assert w.dtype == np.float32
        assert np.array_equal(w, same[name])
        assert not np.array_equal(w, other[name])
        fan_in = np.prod(spec.parameters()[name.split(".")[0] + ".weight"][1:])
        assert 0.5 / np.sqrt(fan_in) < np.abs(w).max() <= 1 / np.sqrt(fan_in)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((("a", Linear(4, 3)), ("b", Linear(4, 3))), "layer 'b'"),
        ((("a", Linear(4, 3)), ("a", ReLU())), "repeat"),
        ((("c", Conv2d(1, 1, 3)),), "Conv2d takes"),
    ],
)
def test_layers_that_do_not_fit_are_named(layers: tuple, words: str) -> None:
    with pytest.raises(UserError, match=words):
        ModelSpec("bad", (4,), layers)
