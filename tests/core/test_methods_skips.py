"""Updates that engines skip, and engines that run in other processes than the trial's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dualml.algorithms.precision import SLOT
from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES
from dualml.backend import Array, Arrays
from dualml.common.errors import TrialError
from dualml.experiment.methods.engine import EngineDataParallel, EngineTrainer, MethodTraining
from dualml.experiment.methods.skips import SkippedUpdates
from dualml.runner.worker.guards import check_steps_applied


def fail_on_read() -> float:
    raise AssertionError("the scale was asked for, which is a synchronisation")


def test_one_update_ends_a_row() -> None:
    skips = SkippedUpdates()
    for number in range(4 * MAX_SKIPPED_UPDATES):
        skips.note(number % MAX_SKIPPED_UPDATES == 0, fail_on_read)
    assert (skips.lost, skips.skipped) == (MAX_SKIPPED_UPDATES - 1, 4 * (MAX_SKIPPED_UPDATES - 1))


def test_too_many_in_a_row_end_the_trial_with_scale_and_remedy() -> None:
    skips = SkippedUpdates()
    skips.note(True, fail_on_read)
    for _ in range(MAX_SKIPPED_UPDATES - 1):
        skips.note(False, fail_on_read)
    with pytest.raises(
        TrialError, match=f"{MAX_SKIPPED_UPDATES} updates in a row.*times 0.5; lower the lea"
    ):
        skips.note(False, lambda: 0.5)


def test_a_checkpoint_brings_the_counts_back() -> None:
    skips, again = SkippedUpdates(), SkippedUpdates()
    for made in (False, True, False):
        skips.note(made, fail_on_read)
    again.load({"exp_avg": {}, **skips.state(128.0)})
    assert (again.lost, again.skipped) == (1, 2)
    assert float(skips.state(128.0)[SLOT]["scale"]) == 128.0
    again.load({})
    assert (again.lost, again.skipped) == (0, 0)


def test_a_trial_whose_updates_were_all_skipped_trained_nothing() -> None:
    check_steps_applied("a", 10, last=64.0, skipped=9)
    with pytest.raises(TrialError, match=r"arm a: nothing.* 10 of 10 updates .* scale of 64:"):
        check_steps_applied("a", 10, last=64.0, skipped=10)


class Counting(MethodTraining):
    """An engine training that only reports its number of processes."""

    def __init__(self, processes: int) -> None:
        self.processes = processes

    def step(self, batch: Array, step: int, weight: float = 1.0) -> Any: ...
    def evaluate(self, x: Array, y: Array) -> Any: ...
    def weights(self) -> Arrays: ...
    def state(self) -> dict[str, Arrays]: ...
    def load(self, weights: Any, state: Any, step: int) -> None: ...
    def capture_forward(self, batch: Array, probe: Array) -> Any: ...
    def fetch_batch(self, batch: Array) -> Any: ...


def start_method(processes: int, asked: int) -> Any:
    """Start a method as a trial of one rank or of several does."""
    backend: Any = SimpleNamespace()
    if asked == 1:
        return EngineTrainer(backend, Counting(processes))
    comm: Any = SimpleNamespace(size=asked, rank=0)
    return EngineDataParallel(backend, Counting(processes), comm)


@pytest.mark.parametrize(("processes", "asked"), [(1, 2), (3, 2), (2, 1)])
def test_an_engine_of_another_world_size_is_refused(processes: int, asked: int) -> None:
    said = {1: "1 process", 2: "2 processes", 3: "3 processes"}
    text = f"trains in {said[processes]}; the trial has {said[asked]}: was it"
    with pytest.raises(TrialError, match=text):
        start_method(processes, asked)


@pytest.mark.parametrize("size", [1, 2])
def test_an_engine_of_the_same_world_size_is_not(size: int) -> None:
    assert start_method(size, size).model.processes == size
