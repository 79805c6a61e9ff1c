"""Transforms of a tensor: each is found again in what it makes of an array, and none by chance."""

from __future__ import annotations

import finder_cases as cases
import numpy as np
import pytest

from dualml.algorithms.model.layers import LayerNorm, Linear
from dualml.common.words import LANGUAGES
from dualml.parity.causes.element_orders import element_orders
from dualml.parity.causes.mutation import Transform
from dualml.parity.finder.paragraph import paragraph
from dualml.parity.transforms import TRANSFORMS, apply_transform, find_transform

X = np.random.default_rng(0).normal(size=(4, 6, 12))
LIMIT = 1e-6
#: First weight of the MLP.
FIRST = "fc1.weight"
FUNCTIONS: tuple[Transform, ...] = (
    ("relu",),
    ("softmax", -1),
    ("center", 1),
    ("negative",),
    ("round",),
    ("shift", 0.25),
)


@pytest.mark.parametrize(
    "transform", [*FUNCTIONS, *list(element_orders(X.shape))[::7]], ids=lambda one: one[0]
)
def test_a_transform_is_found_again(transform: Transform) -> None:
    made = apply_transform(transform, X)
    assert not np.array_equal(made, X)
    found = find_transform(X, np.float32(made), LIMIT)
    assert found is not None
    assert np.allclose(apply_transform(found, X), made)


def test_any_order_of_slices_is_found() -> None:
    order = np.random.default_rng(1).permutation(12)
    assert find_transform(X, X[:, :, order], LIMIT) == ("take", 2, *order)


def test_other_arrays_are_no_transform() -> None:
    other = np.random.default_rng(2).normal(size=X.shape)
    for y in (
        *(other, X + 0.01 * other, X[:3], 1.01 * X, X[::-1] + 0.01),
        *(np.full_like(X, number) for number in (np.nan, np.inf)),
    ):
        assert find_transform(X, y, LIMIT) is None
    assert find_transform(X[:0], X[:0], LIMIT) is None


def test_orders_keep_shape_and_numbers() -> None:
    for transform in element_orders(X.shape):
        assert transform[0] in TRANSFORMS
        made = apply_transform(transform, X)
        assert made.shape == X.shape
        assert np.array_equal(np.sort(made, axis=None), np.sort(X, axis=None))


# --- in an experiment -----------------------------------------------------------------------------

#: Fault → its arm, phase, cause and the numbers of it that are told.
FAULTS = {
    "a gradient upside down": (
        "adam",
        cases.gradient(lambda grads, batch: {**grads, FIRST: grads[FIRST][::-1]}),
        "gradient",
        "rearranged-tensors",
        {"tensors": [FIRST], "order": "flip(0)"},
    ),
    "outputs of a layer in another order": (
        "adam",
        cases.layer(Linear, lambda f, layer, x, p: np.roll(f(layer, x, p), 3, -1)),
        "forward",
        "rearranged-tensors",
        {},
    ),
    "a layer whose output is squashed": (
        "vit",
        cases.layer(LayerNorm, lambda f, layer, x, p: np.tanh(f(layer, x, p))),
        "forward",
        "further-function",
        {"function": "tanh"},
    ),
    "a number added to a layer's output": (
        "vit",
        cases.layer(LayerNorm, lambda f, layer, x, p: f(layer, x, p) + 0.125),
        "forward",
        "shifted-values",
        {},
    ),
}


@pytest.mark.whole
@pytest.mark.parametrize("name", FAULTS)
def test_a_transformed_tensor_is_explained(name: str) -> None:
    arm, fault, phase, cause, detail = FAULTS[name]
    told = cases.finding(arm, {"torch": fault})
    first = told["causes"][0]
    assert (told["phase"], first["cause"]) == (phase, cause)
    assert first["fits"]
    assert detail.items() <= first["detail"].items()
    if cause == "shifted-values":
        assert first["detail"]["offset"][0] == pytest.approx(0.125, rel=1e-5)
    for lang in LANGUAGES:
        assert not {"{", "}"} & set(paragraph(told, lang))
