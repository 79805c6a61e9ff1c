"""Rank coordination where the ranks share the batch and dualml's aggregation makes the updates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator import Communicator
from dualml.backend import Arrays, Backend, GradientBuckets, Training
from dualml.experiment.arm import Arm
from dualml.experiment.batches import BatchSampler
from dualml.experiment.store.agreement import Promise
from dualml.experiment.store.times import TIMES
from dualml.parallel.aggregation.asynchronous import AsyncParameterServer, staleness_stats
from dualml.parallel.aggregation.local_sgd import LocalSGD
from dualml.parallel.aggregation.native import NativeDataParallel
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.aggregation.scheme import parallel_trainer_class
from dualml.parallel.aggregation.straggler import Straggler
from dualml.parallel.aggregation.volume import aggregation_volume
from dualml.parallel.zero.model import ShardedModel
from dualml.parallel.zero.parallel import ZeroDataParallel
from dualml.parallel.zero.units import communication_volume as moved_in_parts
from dualml.runner.worker.evaluate import Score, evaluate
from dualml.runner.worker.ranks import DataParallelRanks, WeightCopies


class AggregationRanks(DataParallelRanks):
    """Data-parallel ranks whose updates are made by one of dualml's aggregations."""

    def __init__(self, parallel: DataParallel, folder: Path, feed: BatchSampler) -> None:
        self.parallel = parallel
        self.sync_period = parallel.settings.every
        self.nondeterministic = (
            isinstance(parallel, AsyncParameterServer) and parallel.settings.arrival == "free"
        )
        self.staleness: dict[str, Any] = {}
        self.changed_averagings = 0  # averagings that changed this rank's weights
        self.promise = weight_promise(parallel)
        super().__init__(parallel.backend, parallel, folder, feed, parallel.comm)

    #: `trace` returns the aggregated gradients.
    traced_phase = "aggregation"

    def warm_up(self, chunk: int, updates: int) -> list[tuple[Any, int]]:
        """Return the batches to compile, each with the number of an update at which parameters are
        averaged, so that the averaging is compiled as well; ``chunk`` is ignored."""
        typical = self.feed.representative_steps(combined=False, updates=updates)
        return [(self.feed.parts(step), self.sync_period) for step in typical]

    def replica_divergence(self) -> list[float]:
        """Return the relative distance of each rank's weights from rank 0's (0.0 for rank 0),
        estimated by one random projection; an empty list where the method lets ranks differ. All
        ranks call it."""
        if isinstance(self.parallel, LocalSGD | AsyncParameterServer):
            return []
        # One random projection of each rank's weights: its difference estimates their distance.
        flat = np.concatenate([w.ravel() for w in self.training.trainable_weights().values()])
        signs = np.random.default_rng(0).integers(0, 2, len(flat)) * 2.0 - 1.0
        own = self.comm.tensor(np.array([flat @ signs, np.linalg.norm(flat.astype(np.float64))]))
        rows = [self.comm.numpy(x) for x in self.comm.all_gather(own)]
        first, size = rows[0][0], max(float(rows[0][1]), 1e-30)
        return [float(abs(row[0] - first) / size) for row in rows]

    def pop_measurements(self) -> list[tuple[int, str, float]]:
        """Return ``divergence`` and ``drift`` of each averaging since the last call, as (update,
        metric, value), and clear their log; an empty list unless parameters are averaged."""
        if not isinstance(self.parallel, LocalSGD):
            return []
        measured, self.parallel.divergence_log = self.parallel.divergence_log, []
        self.changed_averagings += sum(divergence > 0 for _, divergence, _ in measured)
        return [
            (step, metric, value)
            for step, divergence, drift in measured
            for metric, value in (("divergence", divergence), ("drift", drift))
        ]

    def steps_to_compare(self, first: int, last: int) -> list[int]:
        """Return the first and last update in the range after which weights must be equal:
        averagings, updates that a server ends with the gradient of another rank, or the ends."""
        if self.promise == "averaged":
            updates = range(
                -(-first // self.sync_period) * self.sync_period, last + 1, self.sync_period
            )
        elif self.promise == "served" and not self.nondeterministic:
            # Skip updates in which the server applies its own gradient last.
            order = self.parallel.arrival_order  # type: ignore[attr-defined]
            by_others = (t for t in range(first, last + 1) if order(t)[-1])
            back = (t for t in range(last, first - 1, -1) if order(t)[-1])
            return sorted({t for ends in (by_others, back) for t in [next(ends, 0)] if t})
        else:
            return super().steps_to_compare(first, last)
        return sorted({updates[0], updates[-1]}) if updates else []

    def copies(self) -> WeightCopies | None:
        """Return the weights to compare: with ZeRO those held here; with a server rank 0's and
        those of the rank served last (None if that is rank 0); else all. Neighbours share no
        key."""
        if isinstance(self.parallel, ZeroDataParallel):
            return WeightCopies(self.parallel.training.local_weights())
        weights = self.training.trainable_weights()
        if self.promise == "neighbours":
            return WeightCopies({f"{name} of rank {self.rank}": w for name, w in weights.items()})
        if not isinstance(self.parallel, AsyncParameterServer):
            return WeightCopies(weights)
        last = self.parallel.update_log[-1][1] if self.parallel.update_log else 0
        last = int(self.comm.numpy(self.comm.broadcast(self.comm.tensor(np.array([last]))))[0])
        return WeightCopies(weights, (0, last)) if last else None

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int
    ) -> float | None:
        """Return the bytes per update of all ranks together by the closed form of the aggregation
        or of ZeRO; where parameters are averaged, times the share of updates that average."""
        width, updates = np.dtype(self.backend.dtype).itemsize, last - first + 1
        if isinstance(self.parallel, ZeroDataParallel):
            model, sharding = self.parallel.training, self.parallel.training.sharding
            done = self.feed.count_sample_gradients(last) - self.feed.count_sample_gradients(
                first - 1
            )
            chunks = max(1, done // (updates * self.size * model.recipe.chunk))
            each = moved_in_parts(model.units, self.size, sharding, chunks)
            return float(self.size * each * (2 if sharding.lower else width))
        times = 1.0
        if isinstance(self.parallel, LocalSGD):
            times = (last // self.sync_period - (first - 1) // self.sync_period) / updates
        return times * aggregation_volume(self.parallel.settings, shapes, self.size, width)

    def effective_averagings(self, first: int, last: int) -> float | None:
        """Return the smallest share, over the ranks, of averagings that changed a rank's weights;
        None unless ranks average with neighbours, or without an averaging."""
        if self.promise != "neighbours":
            return None
        asked = last // self.sync_period - (first - 1) // self.sync_period
        return -self.max_over_ranks(-self.changed_averagings / asked) if asked else None

    def materialize_losses(self, lazy: Sequence[Any]) -> NDArray[np.float64]:
        """Return the mean losses of the global batches, one per update, gathered from all ranks,
        which all call it."""
        return self.parallel.materialize_losses(lazy)

    def local_gradient(self, batch: Any) -> Arrays:
        """Return this rank's gradient as it enters the aggregation, by parameter name; empty where
        it cannot be observed."""
        return self.parallel.local_gradient(batch)

    def local_losses(self, lazy: Any) -> Arrays:
        """Return this rank's own loss of one update under the key ``rank``; empty if it has
        none."""
        return {} if lazy[0] is None else {"rank": self.backend.materialize_losses([lazy[0]])}

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Use the ranks' consensus of parameters, if they differ, and shared running statistics
        inside the block; then restore this rank's own and wait for all ranks."""
        mean = self.parallel.consensus()
        own = self.parallel.buckets.parameters() if mean is not None else []
        if mean is not None:
            self.parallel.buckets.assign(mean)
        with self.parallel.preserving_statistics():
            self.share_statistics()
            yield
        if mean is not None:
            self.parallel.buckets.assign(own)
        self.comm.barrier()  # waiting for the evaluation must not count as part of an update

    def share_statistics(self) -> None:
        """Give all ranks, which all call it, one set of running statistics: those of rank 0, as in
        `DistributedDataParallel`; where parameters are averaged, the mean over the ranks."""
        statistics = self.parallel.running_statistics()
        if not statistics:
            return
        flat = np.concatenate([x.ravel() for x in statistics.values()])
        ranks = [self.comm.numpy(x) for x in self.comm.all_gather(self.comm.tensor(flat))]
        local = isinstance(self.parallel, LocalSGD)
        shared = np.mean(ranks, axis=0) if local else ranks[0]
        parts = np.split(shared, np.cumsum([x.size for x in statistics.values()])[:-1])
        self.parallel.load_running_statistics(
            {
                name: part.reshape(x.shape).astype(x.dtype)
                for (name, x), part in zip(statistics.items(), parts, strict=True)
            }
        )

    def score(
        self, x: NDArray[np.float32], y: NDArray[np.int64], index: NDArray[np.int64], classes: int
    ) -> Score | None:
        """Evaluate on all ranks where evaluation is collective, divided over them where replicas
        are identical, else on rank 0 alone (None elsewhere)."""
        if self.parallel.collective_eval:
            return super().score(x, y, index, classes)
        if self.parallel.replicas_identical:
            return evaluate(self.training, x, y, index, classes, self.comm)
        return super().score(x, y, index, classes) if self.rank == 0 else None

    def finish(self) -> None:
        """Set the final parameters and running statistics by consensus, and write this rank's
        times; for an asynchronous server also compute the staleness, on rank 0."""
        mean = self.parallel.consensus()
        if mean is not None:
            self.parallel.buckets.assign(mean)
        self.share_statistics()
        TIMES.write(self.folder, self.rank, self.parallel.times.columns())
        if isinstance(self.parallel, AsyncParameterServer) and self.rank == 0:
            self.staleness = {"staleness": staleness_stats(self.parallel.update_log, self.size)}

    def begin_training(self) -> None:
        """Clear the recorded times, and wait for all ranks."""
        self.parallel.times.clear()
        self.comm.barrier()

    def begin_draws(self) -> None:
        """Remove the straggler, which changes no number, and wait for all ranks."""
        self.parallel.slow = None  # sleeping changes no number
        self.comm.barrier()

    def summary(self) -> dict[str, Any]:
        """Return the number of ranks, how each collective is executed, and the staleness of an
        asynchronous server."""
        uses = ("exchange",) if isinstance(self.parallel, AsyncParameterServer) else None
        names = uses or (*self.parallel.strategy.uses, "broadcast")
        how = {name: str(self.comm.implementation_of(name)) for name in names}
        if isinstance(self.parallel, NativeDataParallel):
            how = {"gradients": f"native: {self.parallel.detail}", "broadcast": how["broadcast"]}
        return {"world_size": self.size, "how": how, **self.staleness}


def make_parallel_trainer(
    backend: Backend,
    training: Training,
    pieces: GradientBuckets | None,
    comm: Communicator,
    arm: Arm,
    seed: int,
) -> DataParallel:
    """Make the trainer that an arm's aggregation settings ask for.

    Args:
        training: this rank's training.
        pieces: its gradient buckets; None for a sharded model, which has none.
        seed: seed of the trial, for jitter.
    """
    settings = arm.aggregation
    slow = None if arm.slow is None else Straggler(**arm.slow.model_dump())
    if isinstance(training, ShardedModel):
        return ZeroDataParallel(backend, training, comm, settings, slow, seed)
    assert pieces is not None
    kind = parallel_trainer_class(settings)
    return kind(backend, training, pieces, comm, settings, slow, seed)


def weight_promise(parallel: DataParallel) -> Promise:
    """Return which weights of the ranks must be equal, as `Promise` defines: ``replicas`` (all),
    ``averaged`` (all after an averaging), ``served`` (the server's and those of the rank served
    last), ``neighbours`` or ``shards`` (none)."""
    if isinstance(parallel, ZeroDataParallel):
        return "shards" if parallel.training.sharding.stage == 3 else "replicas"
    if isinstance(parallel, AsyncParameterServer):
        return "served"
    if isinstance(parallel, LocalSGD) and parallel.ranks_diverge:
        return "averaged" if parallel.strategy.exact else "neighbours"
    return "replicas"
