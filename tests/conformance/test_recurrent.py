"""Recurrent language models of every setting, and state carried across batches, against the
reference."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from conformance.backends import REFEREE, ability, adapter_of
from conformance.test_layers import GRADIENT, LENGTH, OUTPUT, UPDATED, WORDS, close, recipe

from dualml.algorithms.model import ModelSpec, initial_weights, model
from dualml.algorithms.model.streams import SLOT, stream_indices
from dualml.backend import Backend, StateCarryover

SAMPLES, BATCH = 24, 4
SETTINGS = [
    {"rnn_type": kind, "layers": layers, "dropout": rate, "tied": tied}
    for kind, layers, rate, tied in product(
        ("lstm", "gru", "tanh", "relu"), (1, 2), (0.0, 0.3), (False, True)
    )
]
#: Models for a framework that compiles every one.
FEW = [s for s in SETTINGS if s["layers"] == 2 and s["dropout"] and s["tied"]]
ORDER = stream_indices(SAMPLES, BATCH)


def spec_of(settings: Mapping[str, Any], **more: Any) -> ModelSpec:
    every = {"width": 6, "hidden": 6, "init_range": 0.1, **settings, **more}
    return model("rnn_lm", words=WORDS, length=LENGTH, recurrent=every)


def text() -> tuple[np.ndarray, np.ndarray]:
    """Return windows of one token stream."""
    tokens = np.random.default_rng(1).integers(0, WORDS, SAMPLES * LENGTH + 1)
    x, y = tokens[:-1].reshape(SAMPLES, LENGTH), tokens[1:].reshape(SAMPLES, LENGTH)
    return x.astype(np.int32), y.astype(np.int64)


def batch(step: int) -> np.ndarray:
    return ORDER[(step - 1) % len(ORDER)].astype(np.int64)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_loss_and_gradients_of_every_setting(
    framework_backend: Backend, settings: dict[str, Any]
) -> None:
    if adapter_of(framework_backend.name).COMPILES and settings not in FEW:
        pytest.skip("compiling each takes long; one of every type has all that there is")
    spec = spec_of(settings)
    own = recipe(spec, initial_weights(spec, 0), text())
    ours, referee = (
        b.training(own).trace(batch(1), batch(1)) for b in (framework_backend, REFEREE)
    )
    assert ours.loss == pytest.approx(referee.loss, rel=OUTPUT)
    close(ours.activations, referee.activations, OUTPUT)
    close(ours.gradients, referee.gradients, GRADIENT)
    assert ("decoder.weight" in ours.gradients) is not settings["tied"]


@pytest.fixture(scope="module", params=["lstm", "gru", "tanh", "relu"])
def pair(request: pytest.FixtureRequest, framework_backend: Backend) -> tuple[Any, Any]:
    """Return a stateful model on the backend and on the reference."""
    if adapter_of(framework_backend.name).COMPILES and request.param in ("tanh", "relu"):
        pytest.skip("compiling each takes long; GRU has the same state and the same loop")
    spec = spec_of({"rnn_type": request.param, "layers": 2, "dropout": 0.2}, stateful=True)
    start = initial_weights(spec, 0)
    own = recipe(spec, start, text(), streams=ORDER, batch=BATCH)
    pair = framework_backend.training(own), REFEREE.training(own)
    for training in pair:
        ability(training, StateCarryover)
    return pair


def begin(training: Any, weights: Any = None, state: Any = None, step: int = 0) -> None:
    spec = training.recipe.spec
    start = dict(weights or initial_weights(spec, 0))
    zeros = {name: np.zeros(w.shape, np.float32) for name, w in start.items()}
    training.load(start, state or {"momentum_buffer": zeros}, step)


def test_a_state_goes_on_as_in_the_referee(
    framework_backend: Backend, pair: tuple[Any, Any]
) -> None:
    """The state is carried through an epoch; the next one starts from zeros again."""
    ours, referee = pair
    begin(ours)
    begin(referee)
    last = len(ORDER) + 2
    lazy = [ours.step(batch(step), step) for step in range(1, last + 1)]
    wanted = [referee.step(batch(step), step) for step in range(1, last + 1)]
    np.testing.assert_allclose(framework_backend.materialize_losses(lazy), wanted, rtol=UPDATED)
    close(ours.weights(), referee.weights(), UPDATED)
    states, right = ours.state()[SLOT], referee.state()[SLOT]
    close(states, right, UPDATED)
    assert all(np.abs(state).max() > 1e-3 for state in right.values())


def test_looking_leaves_the_state_and_samples_find_theirs(pair: tuple[Any, Any]) -> None:
    for training in pair:
        begin(training)
        for step in (1, 2):
            training.step(batch(step), step)
        weights, state = training.weights(), training.state()
        training.trace(batch(3), batch(1)[:2])
        training.evaluate(*text())
        close(training.state()[SLOT], state[SLOT], 0)
        training.step(batch(3)[::-1].copy(), 3)  # in another order
        turned = training.state()[SLOT]
        begin(training, weights, state, 2)  # as after an interruption
        training.step(batch(3), 3)
        close(training.state()[SLOT], turned, OUTPUT)
        begin(training, weights, None, 2)  # without what was carried
        training.step(batch(3), 3)
        assert max(np.abs(training.state()[SLOT][n] - turned[n]).max() for n in turned) > 1e-3
