"""Rank coordination where the ranks share a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.backend import Arrays, Backend, RemoteProcedureCalls, Stage, TrainingSpec
from dualml.common.machine import peak_memory_mb
from dualml.experiment.arm import Arm
from dualml.experiment.batches import BatchSampler
from dualml.experiment.store.times import TIMELINE
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.split.asynchronous_executor import executor_class
from dualml.parallel.split.executor import Executor
from dualml.parallel.split.placed_executor import PlacedExecutor
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.split.remote import SplitModel
from dualml.parallel.split.traffic import FLOAT, total_sent_bytes
from dualml.parallel.split.training import SplitTraining, make_stage, rank_segments
from dualml.parallel.zero.executor import make_executor
from dualml.parity.envelope import shuffle_batch
from dualml.runner.worker.evaluate import Score, evaluate
from dualml.runner.worker.models import ModelCache
from dualml.runner.worker.ranks import MultiRank, WeightCopies

#: Fields of every rank's memory report, in this order.
MEMORY = (
    "live",
    "held_bytes",
    "parameter_bytes",
    "peak_memory_mb",
    "sample_bytes",
    "label_bytes",
)


def split_training(
    backend: Backend,
    plan: SplitPlan,
    arm: Arm,
    comm: Communicator,
    recipe: TrainingSpec,
    models: ModelCache,
    key: str,
) -> SplitModel:
    """Make this rank's part of a split model.

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


class ModelParallelRanks(MultiRank):
    """Ranks that share the model: each holds a part, and the whole batch passes through all of
    them."""

    training: SplitModel

    def __init__(
        self,
        backend: Backend,
        training: SplitModel,
        folder: Path,
        feed: BatchSampler,
        comm: Communicator,
        arm: Arm,
        data: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(backend, training, folder, feed, comm)
        self.executor = training.executor
        self.executor.slow = None if arm.slow is None else Straggler(**arm.slow.model_dump())
        self.memory: dict[str, Any] = {}
        #: Bytes of samples and of labels that this rank has read, as a pair.
        self.bytes_read = data
        self.low_precision = arm.plan_precision.is_low
        self.promise = "parts" if has_copies(self.executor.plan) else "stages"

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Return a batch of every size that occurs, each with update number 1, and start counting
        what is saved for backward passes; ``chunk`` is ignored."""
        self.training.count_saved_bytes(True)
        typical = self.feed.representative_steps(combined=True, updates=updates)
        return [(self.feed.batch(step), 1) for step in typical]

    def begin_training(self) -> None:
        """Gather the memory report of every rank, stop counting saved bytes, clear the timeline,
        and wait for all ranks."""
        executor, held = self.executor, self.executor.plan.rank_stages(self.rank)[1].values()
        self.training.count_saved_bytes(False)
        size = sum(math.prod(p.local_shape) for p in held) * np.dtype(self.backend.dtype).itemsize
        own = np.array(
            [
                executor.max_in_flight,
                executor.max_saved_bytes,
                size,
                peak_memory_mb() or 0.0,
                *self.bytes_read,
            ]
        )
        rows = [self.comm.numpy(x) for x in self.comm.all_gather(self.comm.tensor(own))]
        self.memory = {"memory": [dict(zip(MEMORY, row.tolist(), strict=True)) for row in rows]}
        executor.timeline.clear()
        self.comm.barrier()

    def copies(self) -> WeightCopies:
        """Return this rank's part of each parameter by name and slice, so that equal slices are
        compared; for remote procedure calls all weights on the driver, none elsewhere."""
        if isinstance(self.training, SplitTraining):
            pieces = self.executor.plan.rank_stages(self.rank)[1]
            own = self.training.stage.weights()
            return WeightCopies({f"{name} ({pieces[name]})": w for name, w in own.items()})
        weights = self.training.weights()
        return WeightCopies(weights if self.rank == self.executor.plan.driver else {})

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int
    ) -> float | None:
        """Return the bytes per update that all ranks together send by the split plan, for the mean
        batch size of the updates ``first`` … ``last``; ``shapes`` are ignored."""
        done = self.feed.count_sample_gradients(last) - self.feed.count_sample_gradients(first - 1)
        batch, width = done // (last - first + 1), np.dtype(self.backend.dtype).itemsize
        return total_sent_bytes(self.executor.plan, batch, lower=self.low_precision) * width / FLOAT

    def materialize_losses(self, lazy: Any) -> Any:
        """Return the mean losses of the batches, one per update, on every rank; all call it."""
        return self.training.materialize_losses(lazy)

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate with all ranks on every chunk; the plan's scorer counts and sends the score to
        all."""
        root = self.executor.plan.scorer
        return evaluate(self.training, x, y, index, classes, self.comm, root)

    def shuffle(self, batch: Any, seed: int, draw: int, step: int) -> Any:
        """Shuffle the batch; for a stateful model only inside each micro-batch, because a rank
        holds the states of its own streams."""
        if self.executor.plan.spec.stateful:
            mesh, micro = self.executor.plan.mesh, self.executor.plan.micro_batches
            parts = [p for d in np.array_split(batch, mesh.data) for p in np.array_split(d, micro)]
            return np.concatenate([shuffle_batch(part, seed, draw, step) for part in parts])
        return super().shuffle(batch, seed, draw, step)

    def local_losses(self, lazy: Any) -> Arrays:
        """Return the losses of one update's micro-batches under the key ``micro-batches``; empty on
        a rank that computes none."""
        losses = self.training.micro_batch_losses(lazy)
        return {} if losses is None else {"micro-batches": losses}

    def finish(self) -> None:
        """Write the timeline of this rank's passes and messages to the trial's folder."""
        TIMELINE.write(self.folder, self.rank, self.executor.timeline.columns())

    def begin_draws(self) -> None:
        """Remove the straggler, which changes no number, and wait for all ranks."""
        self.executor.slow = None  # sleeping changes no number
        self.comm.barrier()

    def summary(self) -> dict[str, Any]:
        """Return the number of ranks, their memory reports, and how messages, device transfers or
        remote calls are executed."""
        plan = self.executor.plan
        if plan.engine == "rpc":
            how = {"calls": f"native: {self.training.calls}"}
            return {"world_size": self.size, "how": how, **self.memory}
        if plan.engine == "devices":
            return {"world_size": self.size, "how": self.describe_transfers(), **self.memory}
        uses = ["isend and irecv"] if len(plan.stages) > 1 or plan.shared == "context" else []
        how = {name: str(self.comm.implementation_of("exchange")) for name in uses}
        if plan.mesh.tensor > 1 or plan.same_parameters() or plan.tied_groups():
            how["all_reduce"] = str(self.comm.implementation_of("all_reduce"))
        if plan.shared == "sequence":
            how |= {
                name: str(self.comm.implementation_of(name))
                for name in ("all_gather", "reduce_scatter")
            }
        return {"world_size": self.size, "how": how, **self.memory}

    def describe_transfers(self) -> dict[str, str]:
        """Return how values move between devices, and which component sums gradients across
        processes."""
        assert isinstance(self.executor, PlacedExecutor)
        stage = self.executor.placed
        how = {"transfers": f"native: {stage.transfers_by}"}
        if stage.sums_by:
            how["gradients"] = f"native: {stage.sums_by}"
        elif self.size > 1:
            how["all_reduce"] = str(self.comm.implementation_of("all_reduce"))
        return how


def has_copies(plan: SplitPlan) -> bool:
    """Return whether several ranks hold the same part of some parameter; False for remote procedure
    calls."""
    held = Counter(
        (name, str(piece))
        for rank in range(plan.world_size)
        for name, piece in plan.rank_stages(rank)[1].items()
    )
    return plan.engine != "rpc" and max(held.values(), default=1) > 1
