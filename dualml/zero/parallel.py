"""Data parallel training of a model with sharded parameters, gradients and optimizer state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.aggregation import Ring, Schedule, Strategy
from dualml.aggregation.parallel import DataParallel
from dualml.aggregation.reduce_scatter import ReduceScatterAllGather
from dualml.aggregation.settings import Aggregation
from dualml.aggregation.slow import Slow, pause
from dualml.backend import Array, Arrays, Backend, Memory, Trace
from dualml.communicator import Communicator
from dualml.zero.model import ShardedModel


class Zero(DataParallel):
    """ZeRO data parallel training: the update of plain data parallel training, of which each rank
    makes its part.

    Stage 1 computes the whole gradient, then reduce-scatters it; stages 2 and 3 reduce-scatter each
    unit's gradient as soon as it is computed, for every chunk of a batch. Each rank updates its
    part of the weights. The parts are all-gathered after the update in stages 1 and 2, and before
    every use in stage 3.

    Source: Rajbhandari et al. 2020, "ZeRO", section 5.
    """

    training: ShardedModel

    def __init__(
        self,
        backend: Backend,
        training: ShardedModel,
        comm: Communicator,
        settings: Aggregation,
        slow: Slow | None = None,
        seed: int = 0,
    ) -> None:
        pieces: Any = None  # the model splits an update into units itself
        super().__init__(backend, training, pieces, comm, settings, slow, seed)
        training.moves.late = self.late
        self.together = training.sharding.stage == 3

    def strategy_of(self, settings: Aggregation) -> Strategy:
        """Return the all-reduce strategy whose reduce-scatter and all-gather halves ZeRO uses."""
        return ReduceScatterAllGather() if self.training.sharding.native else Ring()

    def late(self, schedule: Schedule, nbytes: int) -> None:
        """Sleep for the delay of a simulated slow node in a collective of the framework."""
        if self.slow is not None:
            pause(self.slow.schedule_delay(schedule, self.comm.rank, nbytes, self.now))

    def deal(self, batch: Array | Sequence[Array]) -> tuple[Array, float, float]:
        n, chunk = self.comm.size, self.training.recipe.chunk
        parts = np.array_split(batch, n) if isinstance(batch, np.ndarray) else batch
        self.training.rounds = max(1, *(-(-len(part) // chunk) for part in parts))
        return super().deal(batch)

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Make update ``step``; waiting and transfers during computation or update count as
        aggregation time."""
        self.now, moves = step, self.training.moves
        self.training.now = step - 1
        part, share, factor = self.deal(batch)
        begin, moves.seconds = time.perf_counter(), 0.0
        with self.slow_messages():
            loss = self.training.gradient(part, factor)
            spent = time.perf_counter() - begin - moves.seconds
            if self.slow is not None:
                pause(self.slow.computing(self.comm.rank, spent, self.now, self.seed))
            arrive = time.perf_counter() - moves.seconds
            self.training.combine()
            end, moves.seconds = time.perf_counter(), 0.0
            self.training.update(step)
        self.times.add(begin, arrive, end + moves.seconds, time.perf_counter())
        return loss, share

    def memory(self, batch: Array | Sequence[Array] | None = None) -> Memory:
        part = None if batch is None else self.deal(batch)[0]
        if part is not None and not len(part):
            return replace(self.training.memory(), activations=0)
        return self.training.memory(part)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> Trace:
        part, _, factor = self.deal(batch)
        self.training.gradient(part, factor)
        self.training.combine()
        gradients = self.training.unscaled(self.training.gradients())
        return Trace(*self.look(batch, probe), 0.0, gradients)

    def own_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """Return this rank's gradient before the reduction; empty in stages 2 and 3, where no rank
        has it whole."""
        if self.training.sharding.stage > 1:
            return {}
        part, _, factor = self.deal(batch)
        self.training.gradient(part, factor)
        return self.training.unscaled(self.training.own_gradients())
