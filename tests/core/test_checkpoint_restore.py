"""Trainings that resume from a checkpoint: whole and split, with loss scaling; and checkpoints that
do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_cases import save_on
from conformance import split

from dualml.backend.reference.backend import NumpyBackend
from dualml.backend.reference.communicator import run_threads
from dualml.backend.reference.training import NumpyTraining
from dualml.common.errors import UserError
from dualml.experiment.split import Split
from dualml.runner.checkpoint import Slice, open_checkpoint, save
from dualml.runner.checkpoint.convert import convert
from dualml.runner.checkpoint.restoring import restore
from dualml.runner.checkpoint.slices import training_slices

CASE: dict[str, Any] = {
    "model": "deep",
    "optimizer": "adam",
    "sizes": [4] * 4,
    "loss": "cross_entropy",
    "precision": ("fp16", "dynamic"),
}
#: Samples so large that updates are skipped and the loss scale is halved.
LARGE: dict[str, Any] = {"model": "lenet", "optimizer": "sgd", "enlarged": 100.0}


def fresh(comm: Any = None, settings: Any = None, **more: Any) -> Any:
    """Return a training at step 0: whole, or this rank's part."""
    case = {**CASE, **more}
    if comm is not None:
        plan = Split(**settings).plan(split.spec_of(case), comm.size)
        return split.make_training(comm, NumpyBackend(), case, plan)
    recipe = split.recipe_of(case)
    training = NumpyTraining(recipe)
    training.load(recipe.weights, recipe.initial_state(), 0)
    return training


def train(training: Any, first: int, last: int) -> None:
    for step in range(first, last + 1):
        training.step(split.batches(CASE)[step - 1], step)


@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (1, None),
        (2, {"tensor": 2}),
        (4, {"data": 2, "tensor": 2}),
        (3, {"micro_batches": 2}),
    ],
)
def test_a_scaled_loss_and_its_skipped_updates_go_on(
    size: int, settings: Any, tmp_path: Path
) -> None:
    """A checkpoint of a split training is resumed unsplit and by a pipeline, as if never
    interrupted."""

    def begin(comm: Any) -> Any:
        training = fresh(comm if settings else None, settings, **LARGE)
        train(training, 1, 2)
        save(comm, training_slices(training), tmp_path / "ckpt", step=2)
        train(training, 3, 4)
        return training.weights(), training.state()

    weights, state = run_threads(size, begin)[0]
    assert state["loss_scale"]["skipped"] > 0, "there is something to be lost"

    def resume_rank(comm: Any) -> Any:
        training = fresh(comm if comm.size > 1 else None, {"micro_batches": 2}, **LARGE)
        assert restore(training, open_checkpoint(tmp_path / "ckpt")) == 2
        train(training, 3, 4)
        return training.weights(), training.state()

    for other in (1, 3):
        found, also = run_threads(other, resume_rank)[0]
        for name, array in weights.items():
            far = np.abs(found[name] - array).max()  # sums of other parts are rounded otherwise
            assert far <= 2e-3 * np.abs(array).max(), name
        assert also.keys() == state.keys()
        for name, value in state["loss_scale"].items():
            assert also["loss_scale"][name] == value, name


def test_another_model_or_optimizer_is_refused(tmp_path: Path) -> None:
    training = fresh()
    save_on(1, lambda rank: training_slices(training), tmp_path / "adam", step=0)
    found = open_checkpoint(tmp_path / "adam")
    with pytest.raises(UserError, match=r"holds another model than the one that is trained .*only"):
        restore(fresh(model="lenet"), found)
    with pytest.raises(UserError, match=r"state exp_avg, exp_avg_sq; the one that is used has mom"):
        restore(fresh(optimizer="sgd"), found)
    weights = [s for s in training_slices(training) if s.name.startswith("weights/")]
    save_on(1, lambda rank: weights, tmp_path / "weights")
    with pytest.raises(UserError, match="has the optimizer's state of none; the one that is used"):
        restore(training, open_checkpoint(tmp_path / "weights"))
    some = [s for s in training_slices(training) if s.name != "state/exp_avg/fc1.bias"]
    save_on(1, lambda rank: some, tmp_path / "some")
    with pytest.raises(UserError, match=r"has no exp_avg of fc1\.bias"):
        restore(training, open_checkpoint(tmp_path / "some"))
    convert(found, tmp_path / "adam.npz")
    with pytest.raises(UserError, match=r"and does not say after how many updates \(as npz need"):
        restore(training, open_checkpoint(tmp_path / "adam.npz"))


def test_a_rank_reads_what_it_has_of_the_model_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    save_on(1, lambda rank: training_slices(fresh()), tmp_path / "ckpt", step=0)
    read: dict[int, int] = {0: 0, 1: 0}

    def resume_rank(comm: Any) -> None:
        found = open_checkpoint(tmp_path / "ckpt")
        original = type(found).read

        def counting_read(self: Any, *given: Any, **more: Any) -> Any:
            array = original(self, *given, **more)
            read[comm.rank] += array.size
            return array

        training = fresh(comm, {"tensor": 2})
        own = sum(w.size for w in training.stage.weights().values())
        kind = type("Counted", (type(found),), {"read": counting_read})
        object.__setattr__(found, "__class__", kind)
        restore(training, found)
        assert read[comm.rank] == 3 * own + 4, "weights, two moments, and the scale"

    run_threads(2, resume_rank)


def test_slices_of_a_training_have_their_names(tmp_path: Path) -> None:
    names = {slice_.name for slice_ in training_slices(fresh(precision=()))}
    assert {"weights/fc1.weight", "state/exp_avg_sq/fc1.weight"} <= names
    assert all(isinstance(s, Slice) for s in training_slices(fresh()))
