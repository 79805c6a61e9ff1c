"""Data parallel training of a model with sharded parameters, gradients and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend
from dualml.backend.capability import Tensor
from dualml.parallel.aggregation import CollectiveSchedule, Ring, Strategy
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.reduce_scatter import ReduceScatterAllGather
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.straggler import Straggler, pause
from dualml.parallel.batch import Batch
from dualml.parallel.copies import WeightCopies
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.units import communication_volume


class ZeroDataParallel(DataParallel):
    """ZeRO data parallel training: the update of plain data parallel training, of which each rank
    makes its part.

    Stage 1 computes the whole gradient, then reduce-scatters it; stages 2 and 3 reduce-scatter each
    unit's gradient as soon as it is computed, for every chunk of a batch. Each rank updates its
    part of the weights. The parts are all-gathered after the update in stages 1 and 2, and before
    every use in stage 3.

    Source: Rajbhandari et al. 2020, "ZeRO", section 5.
    """

    model: ShardedModel

    def __init__(
        self,
        backend: Backend,
        model: ShardedModel,
        comm: Communicator,
        settings: Aggregation,
        slow: Straggler | None = None,
        seed: int = 0,
    ) -> None:
        pieces: Any = None  # the model splits an update into units itself
        super().__init__(backend, model, pieces, comm, settings, slow, seed)
        model.collectives.delay_hook = self.delay_collective
        if model.sharding.stage == 3:
            self.scored_by, self.promise = "all", "shards"

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the all-reduce strategy whose reduce-scatter and all-gather halves ZeRO uses."""
        return ReduceScatterAllGather() if self.model.sharding.native else Ring()

    def delay_collective(self, schedule: CollectiveSchedule, nbytes: int) -> None:
        """Sleep as long as the straggler delays a collective of ``nbytes`` bytes of the framework;
        not at all on other ranks or without a straggler."""
        if self.slow is not None:
            pause(self.slow.schedule_delay(schedule, self.comm.rank, nbytes, self.step_count))

    def local_batch(self, batch: Batch) -> tuple[Array, float, float]:
        """Return the positions of this rank's samples, their share of the batch and the factor of
        its gradient. Set the model's `micro_steps` to the most chunks of any rank, so that all join
        the same collectives."""
        n, chunk = self.comm.size, self.model.recipe.chunk
        parts = np.array_split(batch, n) if isinstance(batch, np.ndarray) else batch
        self.model.micro_steps = max(1, *(-(-len(part) // chunk) for part in parts))
        return super().local_batch(batch)

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Return this rank's lazy loss of the samples ``part`` and an empty list: the gradients,
        times ``factor`` and the loss scale, stay in the model's buffers, in stages 2 and 3 already
        reduced over the ranks."""
        return self.model.gradient(part, factor), []

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Reduce in the model's buffers what `compute` has not reduced yet (stage 1); return
        ``gradients`` unchanged. All ranks call it."""
        self.model.reduce_gradients()
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """Update this rank's part of the weights and all-gather them, except in stage 3;
        ``gradients`` is ignored. All ranks call it."""
        self.model.update(self.step_count)

    def pop_waiting_seconds(self) -> float:
        """Return the seconds since the last call in which this thread has waited for collectives,
        and start anew: waiting inside computing and updating counts as aggregation."""
        moves = self.model.collectives
        seconds, moves.seconds = moves.seconds, 0.0
        return seconds

    def buffer_bytes(self) -> int | None:
        """Return None: the model counts its gathered units itself."""
        return None

    def traced_gradients(self, batch: Batch) -> Arrays | None:
        """Return the gradient of ``batch``, reduced over the ranks, by canonical name, without an
        update. A collective call."""
        part, _, factor = self.local_batch(batch)
        self.model.gradient(part, factor)
        self.model.reduce_gradients()
        return self.model.unscale_gradients(self.model.gradients())

    def local_gradient(self, batch: Batch) -> Arrays:
        """Return this rank's gradient times its factor, before the reduction, by canonical name and
        without an update; empty in stages 2 and 3, where no rank has it whole."""
        if self.model.sharding.stage > 1:
            return {}
        part, _, factor = self.local_batch(batch)
        self.model.gradient(part, factor)
        return self.model.unscale_gradients(self.model.local_gradients())

    def copies(self) -> WeightCopies | None:
        """Return the weights that this rank holds, to be compared between ranks: all of them by
        name, in stage 3 its part of each unit under a key that no other rank has."""
        return WeightCopies(self.model.local_weights())

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Return the bytes per update that all ranks together send by the closed form of ZeRO, for
        the mean number of chunks in the updates ``first`` … ``last``, which have ``samples``
        samples together."""
        sharding, updates = self.model.sharding, last - first + 1
        chunks = max(1, samples // (updates * self.size * self.model.recipe.chunk))
        each = communication_volume(self.model.units, self.size, sharding, chunks)
        width = 2 if sharding.lower else np.dtype(self.backend.dtype).itemsize
        return float(self.size * each * width)
