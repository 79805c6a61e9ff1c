"""Every backend's `Training` against the float64 reference: same weights, batches and rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance.backends import REFEREE, ability

from dualml.algorithms.model import ZOO, initial_weights, model
from dualml.algorithms.optim import GD, SGD, Adam, LRSchedule, OptimizerSpec
from dualml.backend import Backend, MemoryReport, PeakMemory, TrainingSpec
from dualml.common.distance import distance
from dualml.experiment.arm import make_arm
from dualml.experiment.data import Dataset
from dualml.experiment.freeze import freeze
from dualml.experiment.samples import Samples
from dualml.experiment.schema import Data, Experiment
from dualml.runner.worker.evaluate import evaluate
from dualml.runner.worker.setup import RankResources
from dualml.runner.worker.trial import TrialRunner

X = np.random.default_rng(0).normal(size=(300, 1, 28, 28)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 10, 300)
#: Tolerance of float32 against float64 over a few dozen operations: some units in the last place
#: (2⁻²³).
FLOAT32 = 2e-6


def make_training(
    name: str,
    backend: Backend,
    *,
    loss: str = "cross_entropy",
    rule: OptimizerSpec | None = None,
    schedule: LRSchedule | None = None,
    chunk: int = 256,
    updates: int = 50,
) -> Any:
    spec = model(name)
    return backend.training(
        TrainingSpec(
            spec=spec,
            weights=initial_weights(spec, 0),
            rule=rule or SGD(lr=0.05),
            schedule=schedule or LRSchedule(),
            loss=loss,
            x=X,
            y=Y,
            updates=updates,
            chunk=chunk,
        )
    )


def batch(step: int, size: int = 32) -> np.ndarray:
    return np.random.default_rng(step).choice(300, size, replace=False)


def close(a: dict[str, Any], b: dict[str, Any], bound: float) -> None:
    assert list(a) == list(b)
    for name in a:
        assert distance(a[name], b[name]) <= bound, (name, distance(a[name], b[name]))


def test_close_fails_when_a_tensor_is_off() -> None:
    with pytest.raises(AssertionError):
        close({"w": np.ones(3)}, {"w": np.ones(3) * (1 + 1e-4)}, FLOAT32)
    with pytest.raises(AssertionError):
        close({"w": np.ones(3)}, {"v": np.ones(3)}, FLOAT32)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("name", ZOO)
def test_trace_agrees_with_the_referee(framework_backend: Backend, name: str, loss: str) -> None:
    ours, referee = (make_training(name, b, loss=loss) for b in (framework_backend, REFEREE))
    a, b = (t.trace(batch(1), batch(1)[:8]) for t in (ours, referee))
    assert a.data == b.data
    assert a.loss == pytest.approx(b.loss, rel=FLOAT32)
    close(a.activations, b.activations, FLOAT32)
    close(a.gradients, b.gradients, 2 * FLOAT32)


def test_looking_changes_nothing(backend: Backend) -> None:
    looked, not_looked = (make_training("lenet", backend, rule=Adam(lr=1e-3)) for _ in range(2))
    for step in range(1, 6):
        looked.trace(batch(step), batch(1)[:8])
        looked.evaluate(X[:50], Y[:50])
        looked.step(batch(step), step)
        not_looked.step(batch(step), step)
    for name, w in not_looked.weights().items():
        assert np.array_equal(looked.weights()[name], w), name


@pytest.mark.parametrize(
    "schedule",
    [
        LRSchedule(),
        LRSchedule(kind="step", every=4, gamma=0.5),
        LRSchedule(kind="cosine", warmup=3),
    ],
    ids=lambda s: s.kind,
)
@pytest.mark.parametrize(
    "rule", [SGD(lr=0.05, momentum=0.9), Adam(lr=1e-3, eps=1e-3)], ids=lambda r: r.name
)
def test_twenty_steps_follow_the_referee(
    framework_backend: Backend, rule: OptimizerSpec, schedule: LRSchedule
) -> None:
    """Twenty steps of the smooth MLP follow the reference; at the kinks of ReLU and pooling, one
    rounding can become a large step."""
    ours, referee = (
        make_training("mlp", b, rule=rule, schedule=schedule, updates=20)
        for b in (framework_backend, REFEREE)
    )
    lazy = [ours.step(batch(step), step) for step in range(1, 21)]
    want = [referee.step(batch(step), step) for step in range(1, 21)]
    np.testing.assert_allclose(framework_backend.materialize_losses(lazy), want, rtol=2e-5)
    close(ours.weights(), referee.weights(), 2e-5)
    for slot, named in referee.state().items():
        close(ours.state()[slot], named, 2e-4)


def test_chunks_accumulate_to_the_full_gradient(backend: Backend) -> None:
    """A batch in uneven chunks makes the same update as in one piece."""
    whole, cut = (make_training("lenet", backend, rule=GD(lr=0.1), chunk=c) for c in (150, 37))
    everything = np.arange(150)
    for step in range(1, 3):
        a, b = backend.materialize_losses(
            [whole.step(everything, step), cut.step(everything, step)]
        )
        assert a == pytest.approx(b, rel=FLOAT32)
    close(whole.weights(), cut.weights(), FLOAT32)


def test_small_and_large_batches_may_alternate(framework_backend: Backend) -> None:
    ours, referee = (make_training("softmax", b, chunk=50) for b in (framework_backend, REFEREE))
    for step, size in enumerate((20, 120, 50, 51, 20), start=1):
        a = framework_backend.materialize_losses([ours.step(batch(step, size), step)])[0]
        assert a == pytest.approx(referee.step(batch(step, size), step), rel=1e-5)
    close(ours.weights(), referee.weights(), 1e-5)


def test_evaluation_counts_every_sample_once(backend: Backend) -> None:
    ours, referee = (make_training("lenet", b) for b in (backend, REFEREE))
    big_x, big_y = np.tile(X, (3, 1, 1, 1))[:617], np.tile(Y, 3)[:617]
    a, b = (evaluate(t, big_x, big_y, np.arange(617), 10) for t in (ours, referee))
    assert a.loss == pytest.approx(b.loss, rel=FLOAT32)
    assert a.counts.sum() == 617
    assert np.array_equal(a.hits, b.hits)
    loss, predicted = referee.evaluate(big_x, big_y)
    assert b.loss == pytest.approx(loss, rel=1e-12)
    right = [(predicted == big_y)[big_y == c].mean() for c in range(10)]
    np.testing.assert_allclose(b.by_class, right)


@pytest.mark.parametrize(
    "rule", [SGD(lr=0.05, momentum=0.9, nesterov=True), Adam(lr=1e-3)], ids=lambda r: r.name
)
def test_going_back_to_a_checkpoint_is_bit_identical(backend: Backend, rule: OptimizerSpec) -> None:
    schedule = LRSchedule(kind="cosine", warmup=2)
    whole = make_training("lenet", backend, rule=rule, schedule=schedule, updates=12)
    for step in range(1, 7):
        whole.step(batch(step), step)
    weights, state = whole.weights(), whole.state()
    for step in range(7, 13):
        whole.step(batch(step), step)
    fresh = make_training("lenet", backend, rule=rule, schedule=schedule, updates=12)
    fresh.step(batch(99), 1)  # whatever it did before must not matter
    fresh.load(weights, state, 6)
    for step in range(7, 13):
        fresh.step(batch(step), step)
    for name, w in whole.weights().items():
        assert np.array_equal(fresh.weights()[name], w), name


#: Class names of the labels.
DIGITS = tuple("0123456789")


def small_trial(backend: Backend, folder: Path, updates: int, **keys: Any) -> TrialRunner:
    """Return a trial of softmax regression with momentum on 150 samples; ``keys`` are keys of its
    arm."""
    x, y = X[:, 0], Y[:150]
    images = ((x - x.min()) * 40).astype(np.uint8)[:150]
    data = Dataset("noise", "env", None, images, y, images[:9], y[:9], "0" * 64, 0.5, 0.5, DIGITS)
    momentum = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
    arms = {"sgd": make_arm(optimizer=momentum, schedule={"warmup": 1}, updates=updates, **keys)}
    plan = freeze(
        Experiment(
            name="one", title={"en": "One"}, data=Data(name="noise"), model="softmax", arms=arms
        ),
        data,
    )
    samples = Samples(X[:150], y, np.arange(5), X[:9], y[:9], 10)
    resources = RankResources(backend, samples)
    return TrialRunner(plan, "sgd", 0, resources, folder, lambda **event: None)


def test_warming_up_does_not_use_up_the_rates(backend: Backend, tmp_path: Path) -> None:
    """The warm-up changes nothing and consumes no learning rate; the schedule has only one."""
    trial = small_trial(backend, tmp_path, updates=1)
    before = trial.training.weights()
    trial.warm_up()
    for name, w in trial.training.weights().items():
        assert np.array_equal(w, before[name]), "warming up left a trace"
    one = sum(w.size for w in before.values()) * np.dtype(backend.dtype).itemsize
    for memory in trial.memory:  # of a rank; none where the backend cannot count
        assert memory["parameters"] == 7850
        assert memory["weights"] == memory["gradients"] == memory["state"] == one
    trial.run_steps(1, 1)
    assert not np.array_equal(trial.training.weights()["fc.weight"], before["fc.weight"])


def test_a_peak_is_of_an_update_that_finds_the_state(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peak is measured on an update whose state already exists: a first update that creates the
    state after freeing its activations would report too little."""
    ability(backend, PeakMemory)
    trial, found = small_trial(backend, tmp_path, updates=3), list[int]()
    able, step = ability(trial.training, MemoryReport), trial.trainer.step

    def recording_step(batch: np.ndarray, number: int) -> Any:
        found.append(able.measure_memory().state)
        return step(batch, number)

    def peak(work: Callable[[], object]) -> int:
        monkeypatch.setattr(trial.trainer, "step", recording_step)
        work()
        monkeypatch.undo()
        return 12345

    monkeypatch.setattr(backend, "measure_peak", peak)
    trial.warm_up()
    assert [memory["device_peak"] for memory in trial.memory] == [12345]
    assert found[-1] == trial.memory[0]["state"] > 0


def test_weights_move_and_the_state_stays(backend: Backend) -> None:
    ours = make_training("softmax", backend, rule=Adam(lr=1e-3))
    ours.step(batch(1), 1)
    weights, state = ours.weights(), ours.state()
    ours.transform_weights(lambda arrays: {name: a + np.float32(1) for name, a in arrays.items()})
    for name, w in ours.weights().items():
        assert np.array_equal(w, weights[name] + np.float32(1)), name
    assert np.array_equal(ours.state()["exp_avg"]["fc.weight"], state["exp_avg"]["fc.weight"])
    assert ours.step_count == 1


def test_copies_are_copies(backend: Backend) -> None:
    ours = make_training("softmax", backend, rule=Adam(lr=1e-3))
    ours.step(batch(1), 1)
    weights, state = ours.weights(), ours.state()
    kept = {n: w.copy() for n, w in weights.items()}, state["exp_avg"]["fc.weight"].copy()
    ours.step(batch(2), 2)
    for name, w in weights.items():
        assert np.array_equal(w, kept[0][name])
    assert np.array_equal(state["exp_avg"]["fc.weight"], kept[1])


def test_the_environment_is_told(backend: Backend) -> None:
    told = backend.environment()
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in told.items())
    assert {"numpy", "device"} <= set(told)
