"""Data parallel training of a model with sharded parameters, gradients and optimizer state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend, BatchTrace, MemoryUsage
from dualml.parallel.aggregation import CollectiveSchedule, Ring, Strategy
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.reduce_scatter import ReduceScatterAllGather
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.straggler import Straggler, pause
from dualml.parallel.zero.model import ShardedModel


class ZeroDataParallel(DataParallel):
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
        slow: Straggler | None = None,
        seed: int = 0,
    ) -> None:
        pieces: Any = None  # the model splits an update into units itself
        super().__init__(backend, training, pieces, comm, settings, slow, seed)
        training.collectives.delay_hook = self.delay_collective
        self.collective_eval = training.sharding.stage == 3

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the all-reduce strategy whose reduce-scatter and all-gather halves ZeRO uses."""
        return ReduceScatterAllGather() if self.training.sharding.native else Ring()

    def delay_collective(self, schedule: CollectiveSchedule, nbytes: int) -> None:
        """Sleep as long as the straggler delays a collective of ``nbytes`` bytes of the framework;
        not at all on other ranks or without a straggler."""
        if self.slow is not None:
            pause(self.slow.schedule_delay(schedule, self.comm.rank, nbytes, self.step_count))

    def local_batch(self, batch: Array | Sequence[Array]) -> tuple[Array, float, float]:
        """Return the positions of this rank's samples, their share of the batch and the factor of
        its gradient. Set the model's `micro_steps` to the most chunks of any rank, so that all join
        the same collectives."""
        n, chunk = self.comm.size, self.training.recipe.chunk
        parts = np.array_split(batch, n) if isinstance(batch, np.ndarray) else batch
        self.training.micro_steps = max(1, *(-(-len(part) // chunk) for part in parts))
        return super().local_batch(batch)

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Make update ``step``; return this rank's lazy loss and its share of the batch. Waiting
        and transfers during computation or update count as aggregation time."""
        self.step_count, moves = step, self.training.collectives
        self.training.step_count = step - 1
        part, share, factor = self.local_batch(batch)
        begin, moves.seconds = time.perf_counter(), 0.0
        with self.delay_messages():
            loss = self.training.gradient(part, factor)
            spent = time.perf_counter() - begin - moves.seconds
            if self.slow is not None:
                pause(self.slow.compute_delay(self.comm.rank, spent, self.step_count, self.seed))
            arrive = time.perf_counter() - moves.seconds
            self.training.reduce_gradients()
            end, moves.seconds = time.perf_counter(), 0.0
            self.training.update(step)
        self.times.add(begin, arrive, end + moves.seconds, time.perf_counter())
        return loss, share

    def measure_memory(self, batch: Array | Sequence[Array] | None = None) -> MemoryUsage:
        """Count the bytes that this rank's model holds; activations are 0 if it has no samples of
        ``batch``."""
        part = None if batch is None else self.local_batch(batch)[0]
        if part is not None and not len(part):
            return replace(self.training.measure_memory(), activations=0)
        return self.training.measure_memory(part)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> BatchTrace:
        """Return the gradient of ``batch``, reduced over the ranks, and activations of the samples
        ``probe``; the loss is 0. A collective call without an update."""
        part, _, factor = self.local_batch(batch)
        self.training.gradient(part, factor)
        self.training.reduce_gradients()
        gradients = self.training.unscale_gradients(self.training.gradients())
        return BatchTrace(*self.capture_forward(batch, probe), 0.0, gradients)

    def local_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """Return this rank's gradient times its factor, before the reduction, by canonical name;
        empty in stages 2 and 3, where no rank has it whole."""
        if self.training.sharding.stage > 1:
            return {}
        part, _, factor = self.local_batch(batch)
        self.training.gradient(part, factor)
        return self.training.unscale_gradients(self.training.local_gradients())
