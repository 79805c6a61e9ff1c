"""The training methods of MindSpore, against the plain training, on a small model."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")

import mindspore as ms
from conformance import methods, native

from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES
from dualml.backend import MemoryReport, backends
from dualml.common.errors import TrialError, Unsupported
from dualml.experiment.methods import METHODS
from dualml.experiment.methods.engine import EngineDataParallel, EngineSupport
from dualml.launch.ranks import run_ranks

#: Batches; the last one is shorter, as at the end of an epoch.
BATCHES = [np.arange(0, 12), np.arange(12, 24), np.arange(24, 31)]
#: The batches of two ranks; of the last one rank gets three samples, the other four.
PARTS = [[batch[: len(batch) // 2], batch[len(batch) // 2 :]] for batch in BATCHES]
#: Tolerance of sums in another order, with two ranks or micro-batches.
ROUNDING = 1e-6
LOW = ["amp_o1", "amp_o2", "amp_o3", "amp_auto"]
UNSUPPORTED = [name for name, info in METHODS["mindspore"].items() if info.unsupported]


def backend() -> Any:
    return backends()["mindspore"].create("cpu", 1)


def train_from_start(training: Any, batches: Any = BATCHES) -> tuple[Any, Any]:
    """Train from the initial weights; return the losses, and the weights after the updates."""
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    lazy = training.run_steps(batches, 1)
    assert len(lazy) == len(batches)
    if isinstance(training, EngineDataParallel):
        return training.mean_losses(lazy), training.model.weights()
    return backend().materialize_losses(lazy), training.weights()


@pytest.fixture(scope="module")
def plain() -> tuple[Any, Any]:
    return train_from_start(backend().training(native.recipe()))


def make_method(name: str) -> Any:
    return backend().require_capability(EngineSupport).method(name, native.recipe(), None)


@pytest.mark.parametrize("name", ["single", "model_train", "recompute"])
def test_one_process_trains_as_the_plain_training(name: str, plain: Any) -> None:
    training = make_method(name)
    losses, weights = train_from_start(training)
    np.testing.assert_allclose(losses, plain[0], rtol=ROUNDING)
    assert native.distance(weights, plain[1]) < ROUNDING
    assert training.step_count == len(BATCHES)
    again, _ = train_from_start(training)  # from the start, with the graphs that are there
    np.testing.assert_array_equal(losses, again)


@pytest.mark.parametrize("name", ["single", "model_train"])
def test_it_goes_on_where_it_was(name: str) -> None:
    training, (losses, weights) = make_method(name), train_from_start(make_method(name))
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    training.run_steps(BATCHES[:2], 1)
    half, state = training.weights(), training.state()
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    training.load(half, state, 2)
    assert backend().materialize_losses(training.run_steps(BATCHES[2:], 3)) == losses[2]
    assert native.distance(training.weights(), weights) == 0


@pytest.mark.parametrize("name", LOW)
def test_low_precision_trains_and_is_low(name: str, plain: Any) -> None:
    training = make_method(name)
    losses, weights = train_from_start(training)
    np.testing.assert_allclose(losses, plain[0], rtol=1e-2)
    assert 1e-5 < native.distance(weights, plain[1]) < 0.1
    again, same = train_from_start(training)
    np.testing.assert_array_equal(losses, again)
    assert native.distance(weights, same) == 0


def test_every_level_is_another_arithmetic() -> None:
    losses = {}
    for name in LOW:
        training = backend().require_capability(EngineSupport).method(name, methods.recipe(), None)
        losses[name] = tuple(
            backend().materialize_losses(training.run_steps(methods.BATCHES[:2], 1))
        )
    assert len(set(losses.values())) == len(LOW), losses


def test_what_was_trained_in_low_precision_is_seen_in_full() -> None:
    low, full = make_method("amp_o3"), backend().training(native.recipe())
    _, weights = train_from_start(low)
    full.load(weights, native.recipe().initial_state(), 0)
    recipe = native.recipe()
    assert low.evaluate(recipe.x, recipe.y)[0] == full.evaluate(recipe.x, recipe.y)[0]


def test_an_overflow_is_passed_over_and_halves_the_scale() -> None:
    training = make_method("amp_o2")
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    scale = training.method.scaler.scale_value
    training.x = training.x * np.float32(1e6)  # more than float16 holds
    before = float(scale.asnumpy())
    training.run_steps(BATCHES[:1], 1)
    assert float(scale.asnumpy()) == before / 2
    assert native.distance(training.weights(), native.WEIGHTS) == 0
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    assert float(scale.asnumpy()) == before


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_does_not_run_here_says_so(name: str) -> None:
    with pytest.raises(Unsupported, match=r"see https://www\.mindspore\.cn/docs/"):
        make_method(name)


def overflowing(name: str) -> Any:
    """Train from the initial weights with a loss scale that float16 cannot hold and that never
    falls."""
    training = make_method(name)
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    training.method.scaler.scale_factor = 1
    ms.ops.assign(training.method.scaler.scale_value, ms.Tensor(1e30, ms.float32))
    return training


def test_overflow_in_every_update_ends_the_trial() -> None:
    training = overflowing("amp_o2")
    short = MAX_SKIPPED_UPDATES - 1
    losses = backend().materialize_losses(training.run_steps([BATCHES[0]] * short, 1))
    assert np.isfinite(losses).all()
    assert native.distance(training.weights(), native.WEIGHTS) == 0
    counted = {name: float(value) for name, value in training.state()["loss_scale"].items()}
    assert counted == {"scale": pytest.approx(1e30), "lost": short, "skipped": short}
    with pytest.raises(
        TrialError, match=rf"{MAX_SKIPPED_UPDATES} updates in a row were skipped.*1e\+30"
    ):
        training.run_steps([BATCHES[0]], MAX_SKIPPED_UPDATES)


def test_an_update_in_between_ends_the_row() -> None:
    training = overflowing("amp_o3")
    scale = training.method.scaler.scale_value
    training.run_steps([BATCHES[0]] * 3, 1)
    ms.ops.assign(scale, ms.Tensor(1.0, ms.float32))
    training.run_steps([BATCHES[0]] * 2, 4)
    assert (training.skips.lost, training.skips.skipped) == (0, 3)
    ms.ops.assign(scale, ms.Tensor(1e30, ms.float32))
    training.run_steps([BATCHES[0]], 6)
    assert (training.skips.lost, training.skips.skipped) == (1, 4)
    weights, state = training.weights(), training.state()
    training.load(weights, state, 6)
    assert (training.skips.lost, training.skips.skipped) == (1, 4)
    training.load(native.WEIGHTS, native.recipe().initial_state(), 0)
    assert (training.skips.lost, training.skips.skipped) == (0, 0)


@pytest.mark.parametrize("name", ["single", "model_train", *LOW])
def test_memory_is_that_of_the_tensors_that_are_there(name: str) -> None:
    """The counted memory is that of the existing tensors: in low precision, too, parameters and
    gradients are float32, because the graph casts them."""
    training = make_method(name)
    memory = training.require_capability(MemoryReport).measure_memory(BATCHES[0])
    whole = sum(w.nbytes for w in native.WEIGHTS.values())
    slots = len(native.RULE.state_keys)
    assert (memory.weights, memory.gradients, memory.state) == (whole, whole, slots * whole)
    assert (memory.activations, memory.buckets) == (None, 0)
    if name != "model_train":  # MindSpore's `Model` shows no gradients
        x, y = map(ms.Tensor.from_numpy, training.batch_arrays(BATCHES[0], 1))
        gradients = ms.value_and_grad(
            training.method.loss, None, training.method.optimizer.parameters, has_aux=name in LOW
        )(x, y)[1]
        assert memory.gradients == sum(g.nbytes for g in gradients)


def train_on_rank(comm: Any, argument: Any) -> dict[str, Any]:
    """Return, on every rank, method → losses and the distance of the weights from those of one
    process."""
    one = train_from_start(backend().training(native.recipe()))
    found = {}
    for name in argument:
        training = backend().method(name, native.recipe(), comm)
        losses, weights = train_from_start(EngineDataParallel(backend(), training, comm), PARTS)
        found[name] = {
            "losses": float(np.abs(losses / one[0] - 1).max()),
            "weights": native.distance(weights, one[1]),
            "processes": training.processes,
            "memory": asdict(training.measure_memory(PARTS[0][comm.rank])),
        }
    return found


@pytest.mark.system
def test_several_ranks_train_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ.get("PYTHONPATH")  # the ranks import this file, and `conformance`
    here = Path(__file__).resolve().parent
    both = (str(here), str(here.parent), *([path] if path else []))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(both))
    names = ["reducer", "data_parallel", "accumulate", "reducer"]
    for found in run_ranks("mindspore", 2, "test_methods_ms:train_on_rank", names, limit=200):
        assert set(found) == set(names)
        for name, rank in found.items():
            assert rank["processes"] == 2
            assert rank["losses"] < ROUNDING, name
            assert rank["weights"] < ROUNDING, name
            whole = sum(w.nbytes for w in native.WEIGHTS.values())
            held = {part: n for part, n in rank["memory"].items() if n}
            assert held == {"weights": whole, "gradients": whole, "state": whole}, name
