"""ZeRO stage 1 combined with a split model: replicas of a stage shard their optimizer state."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dualml.backend import Memory, Recipe, Stage
from dualml.backend.shard import Shardable, Slots, Vectors
from dualml.backend.stage import Arrays
from dualml.communicator import Communicator
from dualml.errors import Unsupported
from dualml.split.executor import Executor
from dualml.split.plan import SplitPlan
from dualml.zero.moves import Moves
from dualml.zero.settings import Sharding
from dualml.zero.units import Unit


def executor_of(
    plan: SplitPlan, comm: Communicator, stage: Stage, *, recipe: Recipe, sharding: Sharding
) -> Executor:
    """Make the executor of a rank; ranks without replicated parameters get a plain `Executor`.

    Raises:
        Unsupported: on all ranks, if this backend cannot shard its parameters.
    """
    if not isinstance(stage, Shardable):
        raise Unsupported(f"this backend cannot {Shardable.does}")
    shared = any(comm.rank in group for group in plan.same_parameters())
    if not shared or not plan.views(comm.rank)[1]:
        return Executor(plan, comm, stage)
    return ShardedExecutor(plan, comm, stage, recipe, sharding)


class ShardedExecutor(Executor):
    """An `Executor` whose ranks with the same parameters each update their own part of them.

    All parameters of a rank form one unit.

    Source: Rajbhandari et al. 2020, "ZeRO", section 5.1, over the replicas of Narayanan et al.
    2021, as Megatron-DeepSpeed combines them.
    """

    def __init__(
        self, plan: SplitPlan, comm: Communicator, stage: Stage, recipe: Recipe, sharding: Sharding
    ) -> None:
        super().__init__(plan, comm, stage)
        assert isinstance(stage, Shardable)  # checked by `make_executor`
        assert self.same is not None  # checked by `make_executor`
        self.group = self.same
        shapes = {name: piece.local for name, piece in plan.views(comm.rank)[1].items()}
        size = sum(map(math.prod, shapes.values()))
        self.unit = Unit(slice(0, 0), shapes, -(-size // self.group.size) * self.group.size)
        vectors = Vectors([list(shapes)], [self.unit.length])
        (self.vector,), (self.gradient,) = stage.flatten(vectors, vectors)
        self.moves = Moves(self.group, sharding)
        self.sums = [self.moves.own(self.gradient)]
        self.shard = stage.shard(recipe, [self.moves.own(self.vector)])

    def reduce(self) -> None:
        """Reduce-scatter the gradients among the ranks with the same parameters."""
        with self.timeline.during("reduce", nbytes=self.added(self.comm.nbytes(self.gradient))):
            self.some_summed(self.gradient)
            self.moves.reduce(self.gradient)

    def buffers(self) -> int:
        """Return 0, because the reduction works in place in the gradients."""
        return 0

    def own_finite(self) -> bool:
        return self.shard.finite(self.sums)

    def update(self, step: int) -> None:
        self.update_own(step, step, 1.0)

    def update_scaled(self, step: int, made: int) -> None:
        self.update_own(step, made, self.scale)

    def update_own(self, step: int, made: int, scale: float) -> None:
        """Update this rank's part of the parameters and all-gather the updated parts."""
        with self.timeline.during("update"):
            self.shard.update(self.sums, step, made, scale)
        with self.timeline.during("reduce", nbytes=self.comm.nbytes(self.vector)):
            self.moves.gather(self.vector)

    # --- what the ranks have together -------------------------------------------------------------

    def reduced(self) -> Arrays:
        return self.unit.named(self.moves.whole(self.group.numpy(self.sums[0])))

    def state(self) -> dict[str, Arrays]:
        slots = self.shard.state().items()
        return {slot: self.unit.named(self.moves.whole(part)) for slot, (part,) in slots}

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        kind = np.dtype(self.group.dtype(self.vector))
        whole = self.group.tensor(self.unit.vector(weights, kind))
        self.group.write(self.vector, 0, whole, "put")
        n, rank = self.group.size, self.group.rank
        slots: Slots = {
            slot: [np.split(self.unit.vector(named, np.float64), n)[rank]]
            for slot, named in state.items()
        }
        self.shard.load(slots, step)

    def memory(self) -> Memory:
        nbytes = self.comm.nbytes
        return Memory(nbytes(self.vector), nbytes(self.gradient), self.shard.held())
