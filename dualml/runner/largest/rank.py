"""A rank that trains one size of a decoder under a memory limit: see `dualml.launch.ranks`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.init import initial_tensor
from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.model.zoo import model
from dualml.backend import ActivationRecomputation, Backend, GradientAccess, TrainingSpec, backends
from dualml.common.array_types import Array
from dualml.common.json_types import JsonObject
from dualml.common.seeds import make_generator
from dualml.experiment.arm import Arm, make_arm
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.split.trainer import SplitTrainer
from dualml.parallel.trainer import Trainer
from dualml.parallel.zero.model import ShardedModel
from dualml.runner.largest.limit import data_bytes, limit_memory
from dualml.runner.worker.models import ModelCache
from dualml.runner.worker.trainers import make_parallel_trainer, split_training

SEED = 0


class LazyInitialWeights(Mapping[str, Array]):
    """The initial weights, each drawn when it is accessed, so that they are never all in memory."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec, self.shapes = spec, spec.parameters()

    def __getitem__(self, name: str) -> Array:
        return initial_tensor(self.spec, SEED, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def train(comm: Communicator, argument: JsonObject) -> JsonObject:
    """Train one size under a memory limit; return what `run_training` returns with a limit. All
    ranks call it.
    ``argument`` has ``arm``, ``sizes``, ``blocks``, ``words``, ``length`` and ``limit`` (bytes).

    A model of one block is trained first, so that the framework's threads, buffers and kernels
    exist: the limit applies to what a process needs beyond that. Weights are loaded without the
    limit, as a checkpoint would be, part by part; what remains allocated counts.

    Raises:
        OutOfMemory: it does not fit.
    """
    backend = backends()[comm.backend].create("cpu", 1)
    run_training(comm, backend, {**argument, "blocks": 1})
    return run_training(comm, backend, argument, base=data_bytes())


def run_training(
    comm: Communicator, backend: Backend, argument: Mapping[str, Any], base: int | None = None
) -> dict[str, Any]:
    """Make the model and train it. Without ``base`` there is no limit, and the result is empty.

    With ``base``, the bytes that the process used before the model (`data_bytes`), it may use
    ``argument["limit"]`` bytes more while it trains. Return the ``losses`` of all updates, the mean
    seconds of an update (``step_s``), ``base_bytes``, and the bytes still in use beyond the base at
    the end (``held_bytes``).

    Raises:
        OutOfMemory: the limit is exceeded.
    """
    arm = make_arm(argument["arm"])
    recipe = make_training_spec(arm, argument)
    trainer = make_trainer(comm, backend, recipe, arm)
    shapes = recipe.spec.parameters().items()
    zeros = {name: np.broadcast_to(np.float64(0), shape) for name, shape in shapes}
    trainer.load(recipe.weights, dict.fromkeys(recipe.rule.state_keys, zeros), 0)
    if base is None:
        run_updates(trainer, arm)
        return {}
    with limit_memory(base, argument["limit"]):
        begin = time.perf_counter()
        losses = run_updates(trainer, arm)
        seconds = (time.perf_counter() - begin) / arm.updates
    return {
        "losses": losses,
        "step_s": seconds,
        "base_bytes": base,
        "held_bytes": data_bytes() - base,
    }


def run_updates(trainer: Trainer, arm: Arm) -> list[float]:
    """Make the arm's updates, all on the same samples, so that the loss must fall; return the loss
    of each."""
    batch, updates = np.arange(arm.batch_size), range(1, arm.updates + 1)
    return [float(trainer.mean_losses([trainer.step(batch, step)])[0]) for step in updates]


def make_training_spec(arm: Arm, argument: Mapping[str, Any]) -> TrainingSpec:
    """Make the training config of a decoder of the size in ``argument``, with one batch of random
    tokens as data."""
    sizes = {**argument["sizes"], "blocks": argument["blocks"]}
    spec = model(arm.model, words=argument["words"], length=argument["length"], sizes=sizes)
    shape = (arm.batch_size, argument["length"] + 1)
    tokens = make_generator(SEED, "largest", "tokens").integers(0, argument["words"], shape)
    return TrainingSpec(
        spec=spec,
        weights=LazyInitialWeights(spec),
        rule=arm.rule,
        x=tokens[:, :-1].astype(np.int32),
        y=tokens[:, 1:].astype(np.int64),
        updates=arm.updates,
        chunk=arm.chunk,
        seed=SEED,
        recompute=recompute_groups(spec, arm.recompute),
    )


def make_trainer(comm: Communicator, backend: Backend, recipe: TrainingSpec, arm: Arm) -> Trainer:
    """Make this rank's trainer: split, sharded, data-parallel, or the whole model."""
    if arm.split is not None:
        plan = arm.split.plan(recipe.spec, comm.size)
        split = split_training(backend, plan, arm, comm, recipe, ModelCache(), "")
        return SplitTrainer(backend, split, comm)
    if arm.zero:
        sharded = ShardedModel(backend, recipe, comm, arm.sharding)
        return make_parallel_trainer(backend, sharded, None, comm, arm, SEED)
    training = backend.training(recipe)
    if recipe.recompute:
        training.require_capability(ActivationRecomputation)
    if comm.size == 1:
        return Trainer(backend, training)
    buckets = bucket_layout(recipe.spec.parameters(), arm.aggregation.bucket_bytes)
    pieces = training.require_capability(GradientAccess).make_buckets(buckets)
    return make_parallel_trainer(backend, training, pieces, comm, arm, SEED)
