"""Setup of one rank of a trial before training: its model, its samples, its role among the
ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator, Implementation
from dualml.backend import (
    ActivationRecomputation,
    Backend,
    DeviceReplication,
    MixedPrecision,
    StateCarryover,
    Training,
    TrainingSpec,
)
from dualml.experiment.batches import partition_key
from dualml.experiment.methods import METHODS
from dualml.experiment.methods.engine import EngineSupport, EngineTrainer, MethodTraining
from dualml.experiment.methods.engine_loader import make_data_parallel
from dualml.experiment.methods.registry import check_backend_ranks
from dualml.experiment.plan import Plan
from dualml.experiment.samples import Samples
from dualml.parallel.aggregation import REPLICAS, SCHEMES
from dualml.parallel.offload.model import OffloadedModel
from dualml.parallel.split.trainer import SplitTrainer
from dualml.parallel.trainer import Trainer
from dualml.parallel.zero.model import ShardedModel
from dualml.runner.worker.capture import PROBE
from dualml.runner.worker.join import single_rank_group
from dualml.runner.worker.models import ModelCache
from dualml.runner.worker.ranks import MultiRank, SingleRank
from dualml.runner.worker.trainers import make_parallel_trainer, make_straggler, split_training


@dataclass(frozen=True)
class RankResources:
    """Objects that a rank provides to every trial it runs.

    Args:
        backend: the backend that trains.
        samples: the data that this rank has read.
        comm: the process group; None for a single rank.
        models: cache with the models of earlier trials of this process.
    """

    backend: Backend
    samples: Samples
    comm: Communicator | None = None
    models: ModelCache = field(default_factory=ModelCache)


class TrialSetup:
    """A trial of one rank before its first update: plan, samples, trainer and model are ready. All
    ranks of the trial make it together.

    Args:
        plan: the frozen plan.
        arm, seed: name of the trial's arm, and its seed.
        resources: what the rank provides: backend, samples, process group, model cache.
        folder: folder of the trial.
        emit: called with progress: ``emit(phase=…, done=…, total=…, loss=…)``.
        checkpoint_every: seconds of training between two checkpoints.
    """

    def __init__(
        self,
        plan: Plan,
        arm: str,
        seed: int,
        resources: RankResources,
        folder: Path,
        emit: Callable[..., None],
        checkpoint_every: float = 10.0,
    ) -> None:
        self.plan, self.arm_name, self.seed, self.backend = plan, arm, seed, resources.backend
        self.arm = plan.experiment.arms[arm]
        self.samples, self.folder, self.emit = resources.samples, folder, emit
        self.checkpoint_every = checkpoint_every
        self.schedule, self.feed = plan.schedule(self.arm, seed), plan.batch_sampler(self.arm, seed)
        self.initial, self.spec = plan.initial(seed, self.arm), plan.spec_of(self.arm)
        self.probe = self.feed.batch(1)[:PROBE]
        self.rule = self.arm.rule
        self.unit = "nat" if plan.experiment.loss == "cross_entropy" else "1"
        #: Dtype policy of the low-precision numbers; None in full precision.
        self.precision_policy: Implementation | None = None
        #: The offloaded model; None where everything stays on the device.
        self.offloaded_model: OffloadedModel | None = None
        #: The method whose engine runs the updates in its own loop; None otherwise.
        self.engine: MethodTraining | None = None
        try:
            self.trainer = self.make_trainer(resources.comm, resources.models)
            self.training, comm = self.trainer.model, self.trainer.comm
            self.ranks = (
                SingleRank(self.trainer, folder, self.feed)
                if comm is None
                else MultiRank(self.trainer, folder, self.feed, comm)
            )
            self.restart(dict(self.initial))
        except BaseException:  # nobody else can close it yet
            self.close()
            raise

    def make_trainer(self, comm: Communicator | None, models: ModelCache) -> Trainer:
        """Make the trainer that the arm asks for, with this rank's model; ``comm`` is None for a
        single process. Sets `precision_policy`, `offloaded_model` and `engine` where the arm has
        them."""
        key, backend, arm = self.model_key(), self.backend, self.arm
        plan = self.plan.splits.get(self.arm_name)
        if plan is not None and comm is None and plan.engine == "devices":
            comm = single_rank_group(backend)
        if plan is not None and comm is not None:
            split = split_training(backend, plan, arm, comm, self.training_spec(), models, key)
            if self.spec.stateful:
                split.require_capability(StateCarryover)
            if arm.plan_precision.is_low:
                self.precision_policy = split.require_capability(MixedPrecision).precision_policy
            return SplitTrainer(
                backend,
                split,
                comm,
                make_straggler(arm),
                self.seed,
                lower=arm.plan_precision.is_low,
                data=self.samples.memory_bytes,
            )
        if arm.method:
            check_backend_ranks(backend.name, arm.method, arm.world_size)
            driving = backend.require_capability(EngineSupport)
            self.engine = made = models.get_or_make_model(
                key,
                lambda: driving.method(arm.method, self.training_spec(), comm, arm.method_config),
            )
            if comm is None:
                return EngineTrainer(backend, made)
            info = METHODS.get(backend.name, {}).get(arm.method)
            return make_data_parallel(backend, made, comm, info)
        if arm.offload is not None or (arm.zero and comm is not None):
            return self.make_sharded_trainer(comm, models, key)
        own = models.get_or_make_model(key, self.make_training)
        if arm.recompute != "none":
            own.require_capability(ActivationRecomputation)
        if self.spec.stateful:
            own.require_capability(StateCarryover)
        if arm.plan_precision.is_low:
            self.precision_policy = own.require_capability(MixedPrecision).precision_policy
        if comm is None:
            return Trainer(backend, own)
        pieces = models.get_buckets(key, self.spec.parameters(), arm.aggregation, comm)
        return make_parallel_trainer(backend, own, pieces, comm, arm, self.seed)

    def make_sharded_trainer(
        self, comm: Communicator | None, models: ModelCache, key: str
    ) -> Trainer:
        """Make the trainer of a model that is sharded (ZeRO) or offloaded, cached under ``key``.
        One that is offloaded may have a single rank (``comm`` None), and is not cached: its files
        are in the trial's folder."""
        arm, backend = self.arm, self.backend
        group, recipe = single_rank_group(backend) if comm is None else comm, self.training_spec
        model: ShardedModel
        if arm.offload is None:
            model = models.get_or_make_model(
                f"{arm.sharding} {group.rank} of {group.size} {key}",
                lambda: ShardedModel(backend, recipe(), group, arm.sharding),
            )
        else:
            model = self.offloaded_model = OffloadedModel(
                backend, recipe(), group, arm.sharding, arm.offload, self.folder
            )
        if arm.plan_precision.is_low:
            self.precision_policy = model.mixed_stage.precision_policy
        if comm is None:
            return Trainer(backend, model)
        return make_parallel_trainer(backend, model, None, comm, arm, self.seed)

    def close(self) -> None:
        """Close the offloaded model and the method's engine, if there are any; cached models
        stay."""
        if self.offloaded_model is not None:
            self.offloaded_model.close()
        if self.engine is not None:
            self.engine.close()

    def model_key(self) -> str:
        """Return the key of everything that determines the model's code; arms with the same key may
        use one model in turn."""
        arm, schedule = self.arm, self.arm.plan_schedule
        length = (
            0 if schedule.constant else self.schedule.updates
        )  # a list of rates ends with the trial
        rule = arm.plan_partition
        noise = partition_key(arm, self.seed) if rule is not None and rule.changes_features else ""
        own = arm.aggregation.strategy if arm.aggregation.strategy in SCHEMES else ""
        plan = self.plan.splits.get(self.arm_name)
        keeps_seed = self.spec.dropout_names and (plan is None or plan.engine == "rpc")
        streams = arm.batch_size if self.spec.stateful else 0
        model = (arm.variant or self.spec.name, self.seed if keeps_seed else 0, streams)
        # A single rank's code may be specialised to its batch size and number of updates.
        alone = (arm.batch_size, self.schedule.updates) if arm.world_size == 1 else ()
        own += arm.method + str(arm.method_config or "")
        key = (self.rule, schedule.describe(), arm.chunk, length, noise, own, model, alone)
        return str((*key, arm.plan_precision, arm.recompute))

    def training_spec(self) -> TrainingSpec:
        """Make the config from which a backend makes the model and its optimizer; it is made anew
        in each call, because for a partition by features it holds a copy of the training set."""
        s = self.samples
        return self.plan.training_spec(self.arm, self.seed, s.train_x, s.train_y)

    def make_training(self) -> Training:
        """Make the model's training on this backend, replicated over its devices if the arm's
        strategy asks for it."""
        training = self.backend.training(self.training_spec())
        if self.arm.aggregation.strategy == REPLICAS:
            training.require_capability(DeviceReplication).enable_replicas()
        return training

    def restart(self, weights: dict[str, NDArray[Any]]) -> None:
        """Load these weights, and reset the optimizer state and the step counter to those before
        update 1. All ranks call it."""
        names = self.spec.parameters()
        fresh = self.rule.init({name: weights[name].astype(np.float64) for name in names})
        self.trainer.load(weights, fresh, 0)
