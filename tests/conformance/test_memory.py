"""The memory of a training is counted to the byte, and counting does not change the training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conformance import parallel
from conformance.backends import ability, create, on_ranks, rank_backends, tolerance
from conformance.parallel import SPEC

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import SGD, Adam, OptimizerSpec
from dualml.backend import Arrays, Backend, MemoryReport, PeakMemory, TrainingSpec

SAMPLES, BATCH, CHUNK = 40, 12, 8
#: Frameworks whose kernels round depending on memory addresses: two runs of one training differ,
#: even without counting.
ROUNDS = {"mindspore"}
RULES = [SGD(lr=0.1), SGD(lr=0.1, momentum=0.9), Adam(lr=0.01)]


def recipe(spec: ModelSpec, rule: OptimizerSpec) -> TrainingSpec:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(SAMPLES, *spec.input_shape)).astype(np.float32)
    y = draw.integers(0, 10, SAMPLES)
    weights = initial_weights(spec, 0)
    return TrainingSpec(spec=spec, weights=weights, rule=rule, x=x, y=y, updates=4, chunk=CHUNK)


def batch(step: int) -> np.ndarray:
    return np.random.default_rng(step).permutation(SAMPLES)[:BATCH]


def parameter_bytes(backend: Backend, spec: ModelSpec) -> int:
    """Return the bytes of one number per parameter."""
    return sum(map(math.prod, spec.parameters().values())) * np.dtype(backend.dtype).itemsize


@pytest.mark.parametrize("rule", RULES, ids=["sgd", "momentum", "adam"])
def test_weights_gradients_and_state_are_the_closed_form(
    backend: Backend, rule: OptimizerSpec
) -> None:
    given = recipe(SPEC, rule)
    training = backend.training(given)
    able = ability(training, MemoryReport)
    training.load(given.weights, given.initial_state(), 0)
    training.step(batch(1), 1)
    memory, one = able.measure_memory(batch(2)), parameter_bytes(backend, SPEC)
    assert (memory.weights, memory.gradients) == (one, one)
    assert memory.state == len(rule.state_keys) * one
    assert memory.buckets == 0


def test_activations_of_an_mlp_are_those_counted_by_hand(backend: Backend) -> None:
    """The activations of 784 → 256 → tanh → 128 → tanh → 10 are counted, for a batch of one
    chunk."""
    given = recipe(model("mlp"), RULES[0])
    training = backend.training(given)
    counted = ability(training, MemoryReport).measure_memory(batch(1)).activations
    assert ability(training, MemoryReport).measure_memory().activations is None
    by_hand = {
        # Each tanh's output, which is the next layer's input; log-softmax's, and nll_loss's weight.
        "torch": 4 * CHUNK * (256 + 128 + 10) + 4,
        # On the tape is the output of every layer.
        "numpy": 8 * CHUNK * (2 * 256 + 2 * 128 + 10),
        "mindspore": None,  # inside a compiled graph
    }
    if backend.name not in by_hand:
        pytest.skip(f"nobody counted what {backend.name} keeps")
    assert counted == by_hand[backend.name]


@pytest.mark.parametrize("name", ["softmax", "rnn_lm_dropout"])
def test_counting_changes_no_bit(backend: Backend, name: str) -> None:
    text = name != "softmax"
    spec = model(name, words=24, length=6) if text else model(name)
    given = recipe(spec, RULES[2]) if not text else text_recipe(spec)
    training = backend.training(given)
    able = ability(training, MemoryReport)

    def run_updates(count: bool) -> tuple[Any, Arrays]:
        training.load(given.weights, given.initial_state(), 0)
        lazy = []
        for step in range(1, 5):
            if count:
                before = flat(training)
                able.measure_memory(batch(step))
                assert arrays_equal(before, flat(training))
                assert training.step_count == step - 1
            lazy.append(training.step(batch(step), step))
        return backend.materialize_losses(lazy), flat(training)

    (a, counted), (b, plain) = run_updates(True), run_updates(False)
    if backend.name in ROUNDS:
        assert np.allclose(a, b, rtol=tolerance(backend), atol=0)
    else:
        assert np.array_equal(a, b)
        assert arrays_equal(counted, plain)


def flat(training: Any) -> Arrays:
    """Return weights and state by name."""
    state = {f"{s} {n}": a for s, named in training.state().items() for n, a in named.items()}
    return {**training.weights(), **state}


def arrays_equal(one: Arrays, other: Arrays) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def text_recipe(spec: ModelSpec) -> TrainingSpec:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 24, (SAMPLES, *spec.input_shape)).astype(np.int32)
    weights = initial_weights(spec, 0)
    return TrainingSpec(
        spec=spec, weights=weights, rule=RULES[2], x=x, y=x.astype(np.int64), updates=4
    )


def test_a_peak_is_told_by_an_allocator_or_nothing_runs(backend: Backend) -> None:
    ran: list[int] = []
    peak = ability(backend, PeakMemory).measure_peak(lambda: ran.append(1))
    assert (peak is None) == (ran == [])
    assert peak is None or peak >= 0


# --- several ranks --------------------------------------------------------------------------------


@pytest.fixture(params=rank_backends())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_rank_that_shares_a_batch_has_everything_and_its_buckets(name: str) -> None:
    backend = create(name)
    ability(backend.training(recipe(SPEC, RULES[0])), MemoryReport)
    ranks = on_ranks(name, 2, "conformance.memory:sharing_a_batch", {}, timeout=60)
    one = parameter_bytes(backend, parallel.SPEC)
    for memory in ranks:
        assert (memory["weights"], memory["gradients"], memory["state"]) == (one, one, 2 * one)
        assert memory["buckets"] == one
        assert memory["activations"] is None or memory["activations"] > 0


@pytest.mark.parametrize(
    "settings", [{"micro_batches": 2}, {"tensor": 2}], ids=["layers", "inside"]
)
def test_each_rank_of_a_split_model_has_its_part(name: str, settings: dict[str, Any]) -> None:
    backend = create(name)
    ability(backend.training(recipe(SPEC, RULES[0])), MemoryReport)
    size = np.dtype(backend.dtype).itemsize
    for memory in on_ranks(name, 2, "conformance.memory:sharing_a_model", settings, timeout=60):
        one = size * memory["own"]
        assert (memory["weights"], memory["gradients"], memory["state"]) == (one, one, 2 * one)
        assert memory["activations"] == memory["held"] > 0
        assert memory["buckets"] == 0
