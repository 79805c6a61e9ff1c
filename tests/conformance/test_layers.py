"""Every sequence layer, and the models made of them, on every backend against the reference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conformance.backends import REFEREE, ability, adapter_of
from conformance.layer_cases import BATCH, CASES, SEED, samples, weights

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.model.base import Layer
from dualml.algorithms.optim import SGD
from dualml.backend import Backend, GradientAccess, PipelineStages, Segment, TrainingSpec
from dualml.backend.reference.model import backward, forward
from dualml.common.distance import distance

#: Tolerance of float32 against float64 over a few dozen operations: some units in the last place
#: (2⁻²³ is 1.2e-7). The largest measured values are 5e-7 for outputs and 1.5e-6 for gradients,
#: where entries of different signs cancel in a bias's sum over batch and positions.
OUTPUT, GRADIENT = 2e-6, 6e-6
#: Tolerance after five updates, which accumulate the gradients' differences; measured: 2.2e-6.
UPDATED = 1e-5


def recipe(
    spec: ModelSpec, start: dict[str, Any], data: Any = None, **options: Any
) -> TrainingSpec:
    x, y = data or samples(spec)
    rule, options = SGD(lr=0.1, momentum=0.9), {"updates": 20, "seed": SEED, **options}
    return TrainingSpec(spec=spec, weights=start, rule=rule, x=x, y=y, **options)


def close(found: dict[str, Any], wanted: dict[str, Any], bound: float) -> None:
    assert list(found) == list(wanted)
    far = {name: distance(found[name], wanted[name]) for name in wanted}
    assert {name: d for name, d in far.items() if d > bound} == {}


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradient_of_a_layer(framework_backend: Backend, name: str) -> None:
    own, everything = recipe(CASES[name], weights(CASES[name])), np.arange(BATCH)
    ours, referee = (
        b.training(own).trace(everything, everything) for b in (framework_backend, REFEREE)
    )
    assert ours.data == referee.data
    assert ours.loss == pytest.approx(referee.loss, rel=OUTPUT)
    close(ours.activations, referee.activations, OUTPUT)
    close(ours.gradients, referee.gradients, GRADIENT)


def test_chunks_of_a_model_with_statistics_count_by_their_samples(
    framework_backend: Backend,
) -> None:
    """Running statistics may take another way than a model without: uneven chunks, all the same."""
    spec = CASES["batch normalisation"]
    own, everything = recipe(spec, weights(spec), chunk=4), np.arange(BATCH)
    ours, referee = (b.training(own) for b in (framework_backend, REFEREE))
    lazy = [ours.step(everything, step) for step in (1, 2)]
    wanted = [referee.step(everything, step) for step in (1, 2)]
    np.testing.assert_allclose(framework_backend.materialize_losses(lazy), wanted, rtol=UPDATED)
    close(ours.weights(), referee.weights(), UPDATED)


# --- models of the zoo ----------------------------------------------------------------------------

WORDS, LENGTH, SAMPLES = 50, 7, 60
INDEX = np.random.default_rng(0).permutation(SAMPLES)


def zoo(name: str) -> tuple[ModelSpec, tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(1)
    if name == "vit":
        x = draw.normal(size=(SAMPLES, 1, 28, 28)).astype(np.float32)
        return model(name), (x, draw.integers(0, 10, SAMPLES))
    text = draw.integers(0, WORDS, (SAMPLES, LENGTH + 1))
    return model(name, words=WORDS, length=LENGTH), (text[:, :-1].copy(), text[:, 1:].copy())


@pytest.fixture(scope="module", params=["vit", "rnn_lm", "rnn_lm_dropout", "gpt", "gpt_llama"])
def pair(request: pytest.FixtureRequest, framework_backend: Backend) -> tuple[Any, Any]:
    """Return the same model and data on the backend and the reference, in chunks of 16 samples."""
    if adapter_of(framework_backend.name).COMPILES and request.param == "gpt":
        pytest.skip("compiling it takes a minute; its layers are tested above, gpt_llama is one")
    spec, data = zoo(request.param)
    own = recipe(spec, initial_weights(spec, 0), data, chunk=16)
    return framework_backend.training(own), REFEREE.training(own)


def reset_pair(pair: tuple[Any, Any], step: int = 0) -> tuple[Any, Any]:
    """Reset both trainings to the initial weights and zero state, as if after ``step`` updates."""
    for training in pair:
        spec = pair[1].model.spec
        start = dict(initial_weights(spec, 0))
        zeros = {name: np.zeros(w.shape, np.float32) for name, w in start.items()}
        training.load(start, {"momentum_buffer": zeros}, step)
    return pair


def test_five_updates_follow_the_referee(framework_backend: Backend, pair: tuple[Any, Any]) -> None:
    """Updates agree for whole batches (16 samples) and chunked ones (20 samples)."""
    ours, referee = reset_pair(pair)
    batches = [INDEX[: 16 if step % 2 else 20] for step in range(1, 6)]
    lazy = [ours.step(batch, step) for step, batch in enumerate(batches, start=1)]
    wanted = [referee.step(batch, step) for step, batch in enumerate(batches, start=1)]
    np.testing.assert_allclose(framework_backend.materialize_losses(lazy), wanted, rtol=UPDATED)
    close(ours.weights(), referee.weights(), UPDATED)
    loss, predicted = ours.evaluate(referee.x, referee.y)
    wanted_loss, wanted_class = referee.evaluate(referee.x, referee.y)
    assert loss == pytest.approx(wanted_loss, rel=UPDATED)
    assert predicted.shape == referee.y.shape
    assert (predicted == wanted_class).mean() > 0.99  # equal logits may change places


def test_a_gradient_has_the_masks_of_the_next_update(pair: tuple[Any, Any]) -> None:
    """A trace uses the dropout masks of the next update, also after a restart and for parts of a
    batch; its evaluation draws none."""
    ours, referee = reset_pair(pair, step=5)
    probe = INDEX[:4]
    a, b = (t.trace(INDEX[:20], probe) for t in (ours, referee))
    assert a.loss == pytest.approx(b.loss, rel=OUTPUT)
    close(a.gradients, b.gradients, GRADIENT)
    close(a.activations, b.activations, OUTPUT)
    dropouts = referee.model.spec.dropout_names
    reset_pair(pair, step=6)
    assert (ours.trace(INDEX[:20], probe).loss == a.loss) is not bool(dropouts)
    reset_pair(pair, step=5)
    pieces = ability(ours, GradientAccess).make_buckets([list(referee.model.weights)])
    total: dict[str, Any] = {}
    for part in (INDEX[:3], INDEX[3:20]):
        _, flat = pieces.gradient(part, len(part) / 20)
        for name, g in pieces.unflatten(flat).items():
            total[name] = total.get(name, 0) + g
    close(total, b.gradients, GRADIENT)
    pieces.update(flat, 6)
    assert ours.step_count == 6


def test_evaluation_drops_nothing(pair: tuple[Any, Any]) -> None:
    ours, referee = reset_pair(pair)
    x, y = referee.x[:16], referee.y[:16]
    plain = ours.evaluate(x, y)[0]
    assert plain == pytest.approx(referee.evaluate(x, y)[0], rel=OUTPUT)
    trained = ours.trace(np.arange(16), np.arange(2)).loss
    dropped = abs(trained - plain) > 1e-4
    assert dropped is bool(referee.model.spec.dropout_names)


# --- parts ----------------------------------------------------------------------------------------


def test_parts_take_and_give_stacks(framework_backend: Backend) -> None:
    """Segments pass on stacks of values: the model with branches, cut where one, two, one and no
    branch is open."""
    spec, start = CASES["branches"], weights(CASES["branches"])
    draw, depths = np.random.default_rng(0), [0, *spec.open_branches().values()]
    before = (draw.normal(size=(BATCH, 4)).astype(np.float32),)
    for first, last in pairwise((0, 2, 4, 6, 9)):
        layers = spec.layers[first:last]
        assert len(before) == 1 + depths[first]
        wanted, tape = forward(layers, start, [v.astype(np.float64) for v in before])
        flows = tuple(draw.normal(size=w.shape).astype(np.float32) for w in wanted)
        gradients, own = backward(tape, start, flows)
        stage = ability(framework_backend, PipelineStages).stage(
            [Segment(layers, len(before), {})], recipe(spec, start), first=False, last=False
        )
        stage.load({name: start[name] for name in own}, {"momentum_buffer": own}, 0)
        outputs = stage.forward(0, 0, tuple(stage.inputs(v) for v in before))
        inputs = stage.backward(0, 0, tuple(stage.inputs(f) for f in flows))
        for found, want in ((outputs, wanted), (inputs, gradients)):
            assert len(found) == len(want)
            for ours, theirs in zip(found, want, strict=True):
                assert distance(np.asarray(ours), theirs) <= OUTPUT
        close(stage.gradients(), own, GRADIENT)
        before = tuple(w.astype(np.float32) for w in wanted)


def test_an_unknown_layer_is_refused(backend: Backend) -> None:
    class Unknown(Layer):
        """A layer of a later version."""

    spec = ModelSpec("new", (4,), (("l", Unknown()),))
    data = np.zeros((2, 4), np.float32), np.zeros(2, np.int64)
    with pytest.raises((NotImplementedError, KeyError), match="Unknown"):
        backend.training(recipe(spec, {}, data)).trace(np.arange(2), np.arange(2))
