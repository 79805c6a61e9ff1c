"""Trainers that the arms of an experiment ask for, made from the models of one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    Backend,
    GradientBuckets,
    RemoteProcedureCalls,
    Stage,
    Training,
    TrainingSpec,
)
from dualml.experiment.arm import Arm
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.split.asynchronous_executor import executor_class
from dualml.parallel.split.executor import Executor
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.remote import SplitModel
from dualml.parallel.split.training import SplitTraining, make_stage, rank_segments
from dualml.parallel.zero.executor import make_executor
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.parallel import ZeroDataParallel
from dualml.runner.worker.models import ModelCache


def split_training(
    backend: Backend,
    plan: SplitPlan,
    arm: Arm,
    comm: Communicator,
    recipe: TrainingSpec,
    models: ModelCache,
    key: str,
) -> SplitModel:
    """Make this rank's part of a split model; all ranks call it.

    Args:
        backend: of this rank.
        plan: which rank holds which part.
        arm: of the trial.
        comm: the communicator.
        recipe: training config of the model.
        models: cache of this process.
        key: key of everything that determines the model's code except the split. Trials that also
            split the model alike use one stage in turn, whatever their schedules.
    """
    if plan.engine == "rpc":
        asked = f"rpc {key} {arm.split} {plan.cut}"
        model: SplitModel = models.get_or_make_model(
            asked, lambda: backend.require_capability(RemoteProcedureCalls).rpc(plan, comm, recipe)
        )
        return model
    assert arm.split is not None
    stage = models.get_or_make_model(
        f"stage {key} {arm.zero} {plan.devices} {rank_segments(plan, comm.rank)}",
        lambda: make_stage(backend, plan, comm.rank, recipe, comm),
    )
    executor: Callable[[SplitPlan, Communicator, Stage], Executor]
    executor = executor_class(arm.split.arrival, plan.engine)
    if arm.zero:
        executor = partial(make_executor, recipe=recipe, sharding=arm.sharding)
    return SplitTraining(backend, plan, comm, recipe, executor, stage)


def make_parallel_trainer(
    backend: Backend,
    model: Training,
    pieces: GradientBuckets | None,
    comm: Communicator,
    arm: Arm,
    seed: int,
) -> DataParallel:
    """Make the trainer that an arm's aggregation settings ask for.

    Args:
        model: this rank's training.
        pieces: its gradient buckets; None for a sharded model, which has none.
        seed: seed of the trial, for jitter.
    """
    settings, slow = arm.aggregation, make_straggler(arm)
    if isinstance(model, ShardedModel):
        return ZeroDataParallel(backend, model, comm, settings, slow, seed)
    assert pieces is not None
    kind = parallel_trainer_class(settings)
    return kind(backend, model, pieces, comm, settings, slow, seed)


def make_straggler(arm: Arm) -> Straggler | None:
    """Return the arm's straggler; None without one."""
    return None if arm.slow is None else Straggler(**arm.slow.model_dump())
