"""dualml's data-parallel update as a trial runs it, for either framework."""

from __future__ import annotations

from typing import Any

import numpy as np
from workload import dataset

from dualml.aggregation.buckets import layout
from dualml.aggregation.scheme import scheme
from dualml.aggregation.settings import Aggregation
from dualml.backend import Divisible, Overlapping, Recipe, backends
from dualml.data import normalised
from dualml.model import initial_weights, model
from dualml.optim import SGD
from dualml.worker.ranks import TOGETHER

BATCH, LR = 64, 0.05
#: Updates per round: the losses of so many are read together, in a trial as in the other loops.
STEPS = 2 * TOGETHER


def samples() -> tuple[Any, Any]:
    """Return normalised training images and labels."""
    data = dataset()
    return normalised(data.train_x, data.mean, data.std), data.train_y


def lenet(x: Any, y: Any) -> Recipe:
    """Return the training configuration: LeNet with SGD."""
    spec = model("lenet")
    return Recipe(
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
        buckets, settings = layout(recipe.spec.parameters()), Aggregation(overlap=overlap)
        if overlap:
            pieces = training.ability(Overlapping).overlapping(buckets, comm)
        else:
            pieces = training.ability(Divisible).pieces(buckets)
        self.parallel = scheme(settings)(backend, training, pieces, comm, settings)
        self.parallel.load(recipe.weights, recipe.state(), 0)
        self.next, self.step, self.updates = Order(len(y), batch), 0, updates

    def __call__(self) -> None:
        for _ in range(self.updates // TOGETHER):
            lazy = []
            for _ in range(TOGETHER):
                self.step += 1
                lazy.append(self.parallel.step(self.next(), self.step))
            self.parallel.read(lazy)
