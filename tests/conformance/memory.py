"""Memory that ranks count, on any backend; run on ranks by `dualml.launch.ranks`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from conformance import parallel, split
from conformance.backends import create

from dualml.aggregation.buckets import layout
from dualml.aggregation.scheme import scheme
from dualml.aggregation.settings import Aggregation
from dualml.backend import Divisible, Recipe
from dualml.experiment.split import Split
from dualml.model import initial_weights
from dualml.optim import rule_from

RULE = rule_from({"name": "adam", "lr": 0.01})
DEEP = {"model": "deep", "optimizer": "adam", "sizes": [8], "loss": "cross_entropy"}


def sharing_a_batch(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return this rank's memory after a data-parallel update."""
    backend, (x, y) = create(comm.backend), parallel.data()
    weights = initial_weights(parallel.SPEC, 0)
    recipe = Recipe(spec=parallel.SPEC, weights=weights, rule=RULE, x=x, y=y, updates=2)
    training = backend.training(recipe)
    pieces = training.ability(Divisible).pieces(layout(parallel.SPEC.parameters(), 2**20))
    together = scheme(Aggregation())(backend, training, pieces, comm, Aggregation())
    together.load(weights, recipe.state(), 0)
    batch = np.arange(8)
    together.step(batch, 1)
    return asdict(together.memory(batch))


def sharing_a_model(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return this rank's memory, and how many of the model's parameters the plan gives it."""
    backend = create(comm.backend)
    plan = Split(**argument).plan(split.spec_of(DEEP), comm.size)
    training = split.made(comm, backend, DEEP, plan)
    training.count_kept(True)
    training.step(split.batches(DEEP)[0], 1)
    training.count_kept(False)
    own = sum(int(np.prod(piece.local)) for piece in plan.views(comm.rank)[1].values())
    return {**asdict(training.memory()), "own": own, "held": training.executor.held}
