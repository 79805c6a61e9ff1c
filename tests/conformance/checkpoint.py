"""Split trainings that save checkpoints and resume from other layouts' checkpoints, on any
backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from conformance import split
from conformance.backends import create

from dualml.backend.reference.training import NumpyTraining
from dualml.experiment.split import Split
from dualml.runner.checkpoint import open_checkpoint, save
from dualml.runner.checkpoint.restoring import restore
from dualml.runner.checkpoint.slices import training_slices

#: Updates before the checkpoint, and after it.
BEFORE, AFTER = 2, 2
#: The first mesh, two replicas of two slices, and the second: three stages.
WROTE = {"ranks": 4, "split": {"data": 2, "tensor": 2}}
READS = {"ranks": 3, "split": {"micro_batches": 2}}
CASE: dict[str, Any] = {
    "model": "deep",
    "optimizer": "adam",
    "sizes": [4] * (BEFORE + AFTER),
    "loss": "cross_entropy",
}


def training_on(comm: Any, layout: Mapping[str, Any]) -> split.SplitTraining:
    case = {**CASE, **layout}
    plan = Split(**layout["split"]).plan(split.spec_of(case), comm.size)
    return split.make_training(comm, create(comm.backend), case, plan)


def saves(comm: Any, folder: str) -> None:
    """Train `BEFORE` updates on the first mesh, then save every rank's part."""
    training = training_on(comm, WROTE)
    for step, batch in enumerate(split.batches(CASE)[:BEFORE], start=1):
        training.step(batch, step)
    save(comm, training_slices(training), Path(folder), step=BEFORE, layout={"mesh": "2 × 1 × 2"})


def resume_on_mesh(comm: Any, folder: str) -> dict[str, list[float]]:
    """Resume on the other mesh; return the loaded weights, and weights and state after more
    updates."""
    training = training_on(comm, READS)
    assert restore(training, open_checkpoint(Path(folder))) == BEFORE
    found = {f"loaded {name}": w for name, w in training.weights().items()}
    for step, batch in enumerate(split.batches(CASE)[BEFORE:], start=BEFORE + 1):
        training.step(batch, step)
    found |= {f"weight {name}": w for name, w in training.weights().items()}
    for slot, named in training.state().items():
        found |= {f"state {slot} {name}": a for name, a in named.items()}
    return {name: np.asarray(a, np.float64).ravel().tolist() for name, a in found.items()}


def expected() -> dict[str, np.ndarray]:
    """Return what the reference computes for the whole model without an interruption."""
    recipe = split.recipe_of(CASE)
    training = NumpyTraining(recipe)
    found = {}
    for step, batch in enumerate(split.batches(CASE), start=1):
        training.step(batch, step)
        if step == BEFORE:
            found = {f"loaded {name}": w for name, w in training.weights().items()}
    found |= {f"weight {name}": w for name, w in training.weights().items()}
    for slot, named in training.state().items():
        found |= {f"state {slot} {name}": a for name, a in named.items()}
    return found
