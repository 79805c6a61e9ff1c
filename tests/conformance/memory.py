"""Memory that ranks count, on any backend; run on ranks by `dualml.launch.ranks`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from conformance import parallel, split
from conformance.backends import create

from dualml.algorithms.model import initial_weights
from dualml.algorithms.optim import rule_from
from dualml.backend import GradientAccess, TrainingSpec
from dualml.experiment.split import Split
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.settings import Aggregation

RULE = rule_from({"name": "adam", "lr": 0.01})
DEEP = {"model": "deep", "optimizer": "adam", "sizes": [8], "loss": "cross_entropy"}


def sharing_a_batch(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return this rank's memory after a data-parallel update."""
    backend, (x, y) = create(comm.backend), parallel.data()
    weights = initial_weights(parallel.SPEC, 0)
    recipe = TrainingSpec(spec=parallel.SPEC, weights=weights, rule=RULE, x=x, y=y, updates=2)
    training = backend.training(recipe)
    pieces = training.require_capability(GradientAccess).make_buckets(
        bucket_layout(parallel.SPEC.parameters(), 2**20)
    )
    together = parallel_trainer_class(Aggregation())(backend, training, pieces, comm, Aggregation())
    together.load(weights, recipe.initial_state(), 0)
    batch = np.arange(8)
    together.step(batch, 1)
    return asdict(together.measure_memory(batch))


def sharing_a_model(comm: Any, argument: dict[str, Any]) -> dict[str, Any]:
    """Return this rank's memory, and how many of the model's parameters the plan gives it."""
    backend = create(comm.backend)
    plan = Split(**argument).plan(split.spec_of(DEEP), comm.size)
    training = split.make_training(comm, backend, DEEP, plan)
    training.count_saved_bytes(True)
    training.step(split.batches(DEEP)[0], 1)
    training.count_saved_bytes(False)
    own = sum(int(np.prod(piece.local_shape)) for piece in plan.rank_stages(comm.rank)[1].values())
    return {
        **asdict(training.measure_memory()),
        "own": own,
        "held": training.executor.max_saved_bytes,
    }
