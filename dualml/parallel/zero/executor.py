"""ZeRO stage 1 combined with a split model: replicas of a stage shard their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import MemoryUsage, Stage, TrainingSpec
from dualml.backend.shard import FlatLayout, FlatParameterStorage, Slots
from dualml.backend.stage import Arrays
from dualml.common.errors import Unsupported
from dualml.parallel.split.executor import Executor
from dualml.parallel.split.plan import SplitPlan
from dualml.parallel.zero.collectives import ShardCollectives
from dualml.parallel.zero.settings import Sharding
from dualml.parallel.zero.units import Unit


def make_executor(
    plan: SplitPlan, comm: Communicator, stage: Stage, *, recipe: TrainingSpec, sharding: Sharding
) -> Executor:
    """Make the executor of a rank; ranks without replicated parameters get a plain `Executor`.

    Raises:
        Unsupported: on all ranks, if this backend cannot shard its parameters.
    """
    if not isinstance(stage, FlatParameterStorage):
        raise Unsupported(f"this backend cannot {FlatParameterStorage.description}")
    shared = any(comm.rank in group for group in plan.same_parameters())
    if not shared or not plan.rank_stages(comm.rank)[1]:
        return Executor(plan, comm, stage)
    return ShardedExecutor(plan, comm, stage, recipe, sharding)


class ShardedExecutor(Executor):
    """An `Executor` whose ranks with the same parameters each update their own part of them.

    All parameters of a rank form one unit.

    Source: Rajbhandari et al. 2020, "ZeRO", section 5.1, over the replicas of Narayanan et al.
    2021, as Megatron-DeepSpeed combines them.
    """

    def __init__(
        self,
        plan: SplitPlan,
        comm: Communicator,
        stage: Stage,
        recipe: TrainingSpec,
        sharding: Sharding,
    ) -> None:
        super().__init__(plan, comm, stage)
        assert isinstance(stage, FlatParameterStorage)  # checked by `make_executor`
        assert self.dp_group is not None  # checked by `make_executor`
        self.group = self.dp_group
        shapes = {name: piece.local_shape for name, piece in plan.rank_stages(comm.rank)[1].items()}
        size = sum(map(math.prod, shapes.values()))
        self.unit = Unit(slice(0, 0), shapes, -(-size // self.group.size) * self.group.size)
        vectors = FlatLayout([list(shapes)], [self.unit.length])
        (self.vector,), (self.gradient,) = stage.flatten(vectors, vectors)
        self.collectives = ShardCollectives(self.group, sharding)
        self.gradient_shards = [self.collectives.local_part(self.gradient)]
        self.shard = stage.make_optimizer_shard(recipe, [self.collectives.local_part(self.vector)])

    def reduce(self) -> None:
        """Reduce-scatter the gradients in place among the ranks with the same parameters: each then
        has the sum of its own part only."""
        with self.timeline.record(
            "reduce", nbytes=self.reduced_bytes(self.comm.nbytes(self.gradient))
        ):
            self.reduce_partial_groups(self.gradient)
            self.collectives.reduce_scatter(self.gradient)

    def buffer_bytes(self) -> int:
        """Return 0, because the reduction works in place in the gradients."""
        return 0

    def is_finite(self) -> bool:
        """Return whether all elements of this rank's part of the reduced gradients are finite."""
        return self.shard.finite(self.gradient_shards)

    def update(self, step: int) -> None:
        """Apply update ``step``: update this rank's part of the parameters and all-gather them."""
        self.update_shard(step, step, 1.0)

    def update_scaled(self, step: int, made: int) -> None:
        """Apply update ``step`` with gradients of the loss times `loss_scale`, which is divided
        out, as `update_shard` does; ``made`` is its number among the updates that were not
        skipped."""
        self.update_shard(step, made, self.loss_scale)

    def update_shard(self, step: int, made: int, scale: float) -> None:
        """Update this rank's part of the parameters from the gradients divided by ``scale``, and
        all-gather the updated parts; ``made`` is the number of update ``step`` among those that
        were not skipped."""
        with self.timeline.record("update"):
            self.shard.update(self.gradient_shards, step, made, scale)
        with self.timeline.record("reduce", nbytes=self.comm.nbytes(self.vector)):
            self.collectives.all_gather(self.vector)

    # --- what the ranks have together -------------------------------------------------------------

    def reduced_gradients(self) -> Arrays:
        """Return the reduced gradients of this rank's stages by parameter name, in the shapes of
        its tensor-parallel shards, gathered from the ranks with the same parameters; in mixed
        precision they are times `loss_scale`. A collective call."""
        return self.unit.unflatten(
            self.collectives.gather_to_host(self.group.numpy(self.gradient_shards[0]))
        )

    def state(self) -> dict[str, Arrays]:
        """Return state key → parameter name → array for this rank's stages, in the shapes of its
        tensor-parallel shards, gathered from the ranks with the same parameters; a collective
        call."""
        slots = self.shard.state().items()
        return {
            slot: self.unit.unflatten(self.collectives.gather_to_host(part))
            for slot, (part,) in slots
        }

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        """Restore the parameters of this rank's stages, and its part of their optimizer state, from
        arrays with the shapes of this rank's shards, as after update ``step``."""
        kind = np.dtype(self.group.dtype(self.vector))
        whole = self.group.tensor(self.unit.flatten(weights, kind))
        self.group.write(self.vector, 0, whole, "put")
        n, rank = self.group.size, self.group.rank
        slots: Slots = {
            slot: [np.split(self.unit.flatten(named, np.float64), n)[rank]]
            for slot, named in state.items()
        }
        self.shard.load(slots, step)

    def memory(self) -> MemoryUsage:
        """Return the bytes of weights and gradients, both whole, and of this rank's part of the
        optimizer state."""
        nbytes = self.comm.nbytes
        return MemoryUsage(nbytes(self.vector), nbytes(self.gradient), self.shard.state_bytes())
