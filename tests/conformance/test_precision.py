"""Low precisions on every backend: values are those of the dtype, and overflowing updates are
skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance.backends import REFEREE, ability, adapter_of

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD, Adam, LRSchedule, OptimizerSpec
from dualml.algorithms.precision import (
    ROUNDOFF,
    SLOT,
    Precision,
    is_representable,
    low_precision_layers,
)
from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES, START
from dualml.backend import Backend, GradientAccess, MixedPrecision, TrainingSpec
from dualml.common.distance import distance
from dualml.common.errors import TrialError, Unsupported

SAMPLES = 64
#: Tolerances in roundings of the type. A kernel may round once more inside a layer, as attention
#: does, and after eight layers that is 1.7; gradients are smaller than the terms they are sums of.
OUTPUT, GRADIENT = 4.0, 20.0
BATCH = np.arange(24)


def make_training(
    backend: Backend,
    name: str,
    precision: Precision,
    *,
    rule: OptimizerSpec | None = None,
    schedule: LRSchedule | None = None,
    enlarged: float = 1.0,
    chunk: int = 256,
    x: Any = None,
) -> Any:
    """Make a training; skip the test if the backend does not support it."""
    draw = np.random.default_rng(0)
    if name == "text_classifier":
        spec = model(name, words=50, length=7)
        x, y = draw.integers(0, 50, (SAMPLES, 7)), draw.integers(0, 6, SAMPLES)
    elif name in ("rnn_lm", "gpt", "gpt_llama"):
        spec = model(name, words=50, length=7)
        x, y = draw.integers(0, 50, (SAMPLES, 7)), draw.integers(0, 50, (SAMPLES, 7))
    else:
        spec = model(name)
        noise = enlarged * draw.normal(size=(SAMPLES, 1, 28, 28)).astype(np.float32)
        x = noise if x is None else x
        y = draw.integers(0, 10, SAMPLES)
    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=rule or SGD(lr=0.05, momentum=0.9),
        schedule=schedule or LRSchedule(),
        x=x,
        y=y,
        updates=30,
        chunk=chunk,
        precision=precision,
    )
    try:
        training = backend.training(recipe)
    except Unsupported as reason:
        pytest.skip(str(reason))
    ability(training, MixedPrecision)
    return training


BOTH = pytest.mark.parametrize(
    "precision", [Precision("bf16"), Precision("fp16", "dynamic")], ids=lambda p: p.type
)


#: Text models: each with one type, and each type with two of them.
ELSEWHERE = [
    ("gpt", "bf16"),
    ("gpt_llama", "fp16"),
    ("text_classifier", "fp16"),
    ("rnn_lm", "bf16"),
]


@BOTH
@pytest.mark.parametrize(
    "name", ["softmax", "mlp", "lenet", "text_classifier", "rnn_lm", "gpt", "gpt_llama"]
)
def test_values_are_rounded_where_the_rule_says(
    framework_backend: Backend, name: str, precision: Precision
) -> None:
    if adapter_of(framework_backend.name).COMPILES and (name, precision.type) in ELSEWHERE:
        pytest.skip("compiling every case takes minutes; a model like it has this type")
    ours, referee = (make_training(b, name, precision) for b in (framework_backend, REFEREE))
    a, b = (t.trace(BATCH, BATCH[:8]) for t in (ours, referee))
    unit, lower = ROUNDOFF[precision.type], low_precision_layers(referee.recipe.spec.layers)
    assert lower
    for layer, value in a.activations.items():
        if layer in lower:
            assert is_representable(value, precision.type), layer
            assert is_representable(b.activations[layer], precision.type), layer
        assert distance(value, b.activations[layer]) <= OUTPUT * unit, layer
    assert a.loss == pytest.approx(b.loss, rel=unit)
    assert list(a.gradients) == list(b.gradients)
    for weight, g in a.gradients.items():
        assert distance(g, b.gradients[weight]) <= GRADIENT * unit, weight


@BOTH
@pytest.mark.parametrize("what", ["inputs", "weights"])
@pytest.mark.parametrize(("name", "layer"), [("softmax", "fc"), ("lenet", "conv1")])
def test_inputs_and_weights_are_cast_before_they_are_multiplied(
    backend: Backend, precision: Precision, name: str, layer: str, what: str
) -> None:
    """Inputs or weights that differ by less than the type's resolution become equal and cancel."""
    near = np.float32(1 + ROUNDOFF[precision.type] / 2)
    assert near > 1
    x = np.ones((SAMPLES, 1, 28, 28), np.float32)
    if what == "inputs":
        x[..., ::2] = near
    training = make_training(backend, name, precision, x=x)
    weights = {key: np.zeros_like(w) for key, w in training.weights().items()}
    own, factor = weights[f"{layer}.weight"], near if what == "weights" else 1
    own[..., 2], own[..., 3] = factor, -1
    training.load(weights, training.state(), 0)
    seen = training.trace(BATCH, BATCH[:8]).activations[layer]
    assert not seen[..., 3:-3].any()  # away from the padding of a convolution


@BOTH
def test_one_layer_without_the_cast_is_noticed(precision: Precision) -> None:
    """One layer without the cast is noticed: its float32 outputs are not values of the
    low-precision type."""
    whole = make_training(REFEREE, "mlp", Precision()).trace(BATCH, BATCH[:8])
    assert not is_representable(whole.activations["fc1"], precision.type)


@BOTH
def test_weights_and_state_stay_float32(backend: Backend, precision: Precision) -> None:
    ours = make_training(backend, "mlp", precision)
    for step in (1, 2):  # the first momentum is the gradient, which is of the type
        ours.step(BATCH, step)
    slots = {k: v for k, v in ours.state().items() if k != SLOT}
    assert slots
    for named in (ours.weights(), *slots.values()):
        assert {value.dtype for value in named.values()} == {np.dtype(backend.dtype)}
        assert not all(is_representable(value, precision.type) for value in named.values())


@BOTH
def test_ten_updates_follow_the_referee(framework_backend: Backend, precision: Precision) -> None:
    ours, referee = (
        make_training(b, "mlp", precision, chunk=10) for b in (framework_backend, REFEREE)
    )
    lazy = [ours.step(BATCH[step:], step) for step in range(1, 11)]
    want = [referee.step(BATCH[step:], step) for step in range(1, 11)]
    unit = ROUNDOFF[precision.type]
    np.testing.assert_allclose(framework_backend.materialize_losses(lazy), want, rtol=4 * unit)
    for name, w in referee.weights().items():
        assert distance(ours.weights()[name], w) <= unit, name
    loss, _ = ours.evaluate(referee.x[:40], referee.y[:40])
    wanted, _ = referee.evaluate(referee.x[:40], referee.y[:40])
    assert loss == pytest.approx(wanted, rel=4 * unit)


def test_a_scale_of_a_power_of_two_changes_no_bit(backend: Backend) -> None:
    """Scaling the loss by a power of two changes no bit in bfloat16, which has float32's range."""
    plain, scaled = (make_training(backend, "mlp", Precision("bf16", s)) for s in (None, 1024.0))
    for step in range(1, 4):
        a, b = backend.materialize_losses([plain.step(BATCH, step), scaled.step(BATCH, step)])
        assert a == b
    for name, w in plain.weights().items():
        assert np.array_equal(scaled.weights()[name], w), name
    assert scaled.loss_scale == 1024.0
    a, b = (t.trace(BATCH, BATCH[:2]).gradients for t in (plain, scaled))
    assert all(np.array_equal(a[name], b[name]) for name in a)


# --- updates that overflow ------------------------------------------------------------------------

#: Factor of the inputs at which the first gradients overflow float16.
LARGE = 100.0
COSINE = LRSchedule(kind="cosine", warmup=3)
DYNAMIC = Precision("fp16", "dynamic")


def overflowing(backend: Backend, precision: Precision = DYNAMIC, **options: Any) -> Any:
    rule = Adam(lr=1e-3, eps=1e-3)
    return make_training(backend, "softmax", precision, rule=rule, enlarged=LARGE, **options)


def test_an_overflowing_update_changes_the_scale_alone(backend: Backend) -> None:
    ours = overflowing(backend)
    start, state = ours.weights(), ours.state()
    assert not any(g.any() for g in ours.trace(BATCH, BATCH[:2]).gradients.values())
    loss = backend.materialize_losses([ours.step(BATCH, 1)])[0]
    assert np.isfinite(loss)
    assert (ours.loss_scale, ours.applied_steps(1), ours.step_count) == (START / 2, 0, 1)
    for name, w in ours.weights().items():
        assert np.array_equal(w, start[name]), name
    for slot, named in ours.state().items():
        for name, value in named.items():
            assert slot == SLOT or np.array_equal(value, state[slot][name]), (slot, name)


@pytest.mark.parametrize("chunk", [256, 10])
def test_the_schedule_goes_on_and_the_count_of_updates_does_not(
    framework_backend: Backend, chunk: int
) -> None:
    """Adam's bias correction counts applied updates; learning rates count steps."""
    pair = [overflowing(b, schedule=COSINE, chunk=chunk) for b in (framework_backend, REFEREE)]
    for step in range(1, 16):
        for training in pair:
            training.step(np.roll(BATCH, step), step)
    ours, referee = pair
    assert 1 <= referee.scaler.skipped < 12
    assert ours.scaler.state() == referee.scaler.state()
    for name, w in referee.weights().items():
        moved = np.linalg.norm(w - referee.recipe.weights[name])
        far = np.linalg.norm(ours.weights()[name] - w)
        assert far <= 0.01 * moved, (name, far, moved)


def test_a_fixed_scale_stays_and_skips(backend: Backend) -> None:
    ours = overflowing(backend, Precision("fp16", START))
    start = ours.weights()
    for step in range(1, MAX_SKIPPED_UPDATES):
        ours.step(BATCH, step)
    assert (ours.loss_scale, ours.scaler.skipped) == (START, MAX_SKIPPED_UPDATES - 1)
    assert all(np.array_equal(w, start[name]) for name, w in ours.weights().items())
    with pytest.raises(
        TrialError, match=f"{MAX_SKIPPED_UPDATES} updates in a row.*65536.*loss_scale lower"
    ):
        ours.step(BATCH, MAX_SKIPPED_UPDATES)


def test_going_back_to_a_checkpoint_brings_the_scale_back(backend: Backend) -> None:
    whole, fresh = (overflowing(backend, schedule=COSINE) for _ in range(2))
    for step in range(1, 8):
        whole.step(np.roll(BATCH, step), step)
    weights, state = whole.weights(), whole.state()
    assert whole.scaler.skipped
    fresh.load(weights, state, 7)
    for step in range(8, 16):
        for training in (whole, fresh):
            training.step(np.roll(BATCH, step), step)
    assert fresh.scaler.state() == whole.scaler.state()
    for name, w in whole.weights().items():
        assert np.array_equal(fresh.weights()[name], w), name
    whole.load(dict(whole.recipe.weights), whole.recipe.initial_state(), 0)
    assert (whole.loss_scale, whole.scaler.skipped) == (START, 0)


def test_pieces_are_skipped_alike(framework_backend: Backend) -> None:
    """Buckets hold scaled gradients; the update unscales them, or is skipped."""
    ours, whole = (overflowing(framework_backend) for _ in range(2))
    names = list(ours.weights())
    pieces = ability(ours, GradientAccess).make_buckets([names[:1], names[1:]])
    for step in range(1, 12):
        scale = ours.loss_scale
        _, gradients = pieces.gradient(BATCH, 1.0)
        if ours.applied_steps(step) > 1:
            traced = whole.trace(BATCH, BATCH[:2]).gradients
            for name, g in pieces.unflatten(gradients).items():
                assert distance(g / np.float32(scale), traced[name]) <= 1e-6, name
        pieces.update(gradients, step)
        whole.step(BATCH, step)
        assert ours.scaler.state() == whole.scaler.state()
    assert 1 <= ours.scaler.skipped < 10
    for name, w in whole.weights().items():
        assert distance(ours.weights()[name], w) <= 1e-6, name
