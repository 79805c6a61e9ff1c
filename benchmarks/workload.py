"""The timed work: a trial of Lab 1 on MNIST, and the loop that a trial spends its time in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualml.experiment.data import Dataset, fingerprint, normalised
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load as load_experiment
from dualml.experiment.plan import Plan
from dualml.experiment.samples import Samples
from dualml.experiment.store.records import RecordWriter
from dualml.runner.worker.guards import check_losses
from dualml.runner.worker.setup import RankResources
from dualml.runner.worker.trial import TrialRunner

ARMS = ("sgd", "adam")
TRAIN, TEST = 60_000, 10_000


def dataset() -> Dataset:
    """Return MNIST; without it and without a network, the embedded digits repeated to MNIST's
    size."""
    data = load_data("mnist", explicit=False)
    if data.source != "embedded":
        return data
    train, test = (
        np.resize(np.arange(len(y)), n) for y, n in ((data.train_y, TRAIN), (data.test_y, TEST))
    )
    arrays = data.train_x[train], data.train_y[train], data.test_x[test], data.test_y[test]
    return Dataset(
        f"{data.name}, repeated to {TRAIN}",
        data.source,
        data.notice,
        *arrays,
        fingerprint(*arrays),
        data.mean,
        data.std,
        data.classes,
    )


class OurLoop:
    """The training loop of a trial: batches from the plan, updates, losses read, checked,
    recorded.

    Args:
        data: `dataset`, or a text. folder: target of the records. steps: updates per round.
        lab, overrides: the experiment that has the arm, and changes to its settings.

    Attributes:
        x, y: the training samples, for the loops that are compared with it.
        rule: the arm's update rule, with its hyperparameters.
    """

    def __init__(
        self,
        backend: Any,
        data: Dataset,
        arm: str,
        folder: Path,
        steps: int,
        lab: str = "lab1",
        overrides: Sequence[str] = (),
    ) -> None:
        plan: Plan = freeze(load_experiment(lab, arms=[arm], overrides=overrides), data)
        self.x, test_x, classes = data.train_x, data.test_x, 0
        if data.kind != "text":
            self.x, test_x = (normalised(x, data.mean, data.std) for x in (self.x, test_x))
            classes = len(data.classes)
        self.y, monitor = data.train_y, plan.order["monitor"].astype(np.int64)
        samples = Samples(self.x, self.y, monitor, test_x, data.test_y, classes)
        resources = RankResources(backend, samples)
        self.trial = TrialRunner(plan, arm, 0, resources, folder, lambda **event: None)
        self.trial.warm_up()
        self.rule = self.trial.rule
        self.records = RecordWriter(folder)
        self.steps, self.done = steps, 0

    def __call__(self) -> float:
        """Return the milliseconds per update of the next ``steps`` updates."""
        trial, first, last = self.trial, self.done + 1, self.done + self.steps
        begin = time.perf_counter()
        trial.losses[self.done : last] = trial.run_steps(first, last)[1]
        trial.write_losses(self.records, first, last)
        check_losses(trial.arm_name, self.rule, trial.losses, self.done, last)
        spent = time.perf_counter() - begin
        # When the plan is used up, begin its updates again.
        self.done = last if last + self.steps <= trial.schedule.updates else 0
        return spent * 1e3 / self.steps
