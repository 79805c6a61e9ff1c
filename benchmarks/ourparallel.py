"""dualml's data-parallel update as a trial runs it, for either framework."""

from __future__ import annotations

from typing import Any

import numpy as np
from workload import dataset

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD
from dualml.backend import CommOverlap, GradientAccess, TrainingSpec, backends
from dualml.experiment.data import normalised
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation
from dualml.runner.worker.ranks import AGREED_WINDOW_UPDATES

BATCH, LR = 64, 0.05
#: Updates per round: the losses of so many are read together, in a trial as in the other loops.
STEPS = 2 * AGREED_WINDOW_UPDATES


def samples() -> tuple[Any, Any]:
    """Return normalised training images and labels."""
    data = dataset()
    return normalised(data.train_x, data.mean, data.std), data.train_y


def lenet(x: Any, y: Any) -> TrainingSpec:
    """Return the training configuration: LeNet with SGD."""
    spec = model("lenet")
    return TrainingSpec(
        spec=spec, weights=initial_weights(spec, 0), rule=SGD(lr=LR), x=x, y=y, updates=STEPS
    )


class Order:
    """Global batches of one permutation after another, the same on every rank."""

    def __init__(self, length: int, batch: int = BATCH) -> None:
        self.draw, self.length, self.batch = np.random.default_rng(0), length, batch
        self.order, self.at = self.draw.permutation(length), 0

    def __call__(self) -> Any:
        if self.at + self.batch > self.length:
            self.order, self.at = self.draw.permutation(self.length), 0
        self.at += self.batch
        return self.order[self.at - self.batch : self.at]


class OurParallel:
    """LeNet, SGD, all-reduce of gradients in one bucket; losses are read as often as in a trial."""

    def __init__(
        self,
        comm: Any,
        x: Any,
        y: Any,
        batch: int = BATCH,
        updates: int = STEPS,
        overlap: bool = False,
    ) -> None:
        backend = backends()[comm.backend].create("cpu", 1)
        recipe = lenet(x, y)
        training = backend.training(recipe)
        buckets, settings = bucket_layout(recipe.spec.parameters()), Aggregation(overlap=overlap)
        if overlap:
            pieces = training.require_capability(CommOverlap).make_reducing_buckets(buckets, comm)
        else:
            pieces = training.require_capability(GradientAccess).make_buckets(buckets)
        self.parallel = parallel_trainer_class(settings)(backend, training, pieces, comm, settings)
        self.parallel.load(recipe.weights, recipe.initial_state(), 0)
        self.next, self.step, self.updates = Order(len(y), batch), 0, updates

    def __call__(self) -> None:
        for _ in range(self.updates // AGREED_WINDOW_UPDATES):
            lazy = []
            for _ in range(AGREED_WINDOW_UPDATES):
                self.step += 1
                lazy.append(self.parallel.step(self.next(), self.step))
            self.parallel.mean_losses(lazy)
