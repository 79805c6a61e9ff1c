"""Data parallel training: the global batch is split over the ranks, and their gradients are
combined."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import Array, Arrays, Backend, Training
from dualml.backend.capability import GradientBuckets, Tensor
from dualml.parallel.aggregation import Strategy, strategy
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.compress import TopK, sum_fp16
from dualml.parallel.aggregation.coordinates import COORDINATEWISE, reduce_coordinates
from dualml.parallel.aggregation.layers import layer_sizes
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.straggler import Straggler, pause
from dualml.parallel.aggregation.times import Times
from dualml.parallel.aggregation.volume import aggregation_volume
from dualml.parallel.batch import Batch
from dualml.parallel.hooks import ScoredBy
from dualml.parallel.trainer import Trainer


class DataParallel(Trainer):
    """Trains on several ranks, each with its part of the batch, and sums their gradients.

    Args:
        model, pieces: this rank's training, and its gradient buckets.
        settings: aggregation settings: the strategy, what it combines, and how often.
        slow: description of the straggler, if any.
        seed: seed of the trial, for jitter.
    """

    comm: Communicator
    buckets: GradientBuckets
    takes_parts = makes_updates = True
    keeps_replicas = True  # also between two evaluations
    traced_phase = "aggregation"
    scored_by: ScoredBy = "divided"

    def __init__(
        self,
        backend: Backend,
        model: Training,
        pieces: GradientBuckets,
        comm: Communicator,
        settings: Aggregation,
        slow: Straggler | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(backend, model, comm, slow, seed)
        self.buckets, self.settings, self.times = pieces, settings, Times()
        self.warm_up_step = settings.every  # so that an averaging is compiled as well
        self.strategy = self.make_strategy(settings)
        self.strategies = self.make_bucket_strategies(settings)
        self.top = TopK(settings.fraction) if settings.compress == "topk" else None

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the strategy that ``settings.strategy`` names."""
        return strategy(settings.strategy)

    def make_bucket_strategies(self, settings: Aggregation) -> dict[str, Strategy]:
        """Return bucket → strategy (``bucket0``, …) for settings whose chunks depend on the
        bucket's layers (``cut`` is ``layers``); else empty."""
        if settings.cut != "layers":
            return {}
        shapes = {name: weight.shape for name, weight in self.model.trainable_weights().items()}
        buckets = enumerate(bucket_layout(shapes, settings.bucket_bytes))
        return {
            f"bucket{i}": self.strategy.for_layers(layer_sizes(names, shapes))
            for i, names in buckets
        }

    # --- one update -------------------------------------------------------------------------------

    def local_batch(self, batch: Batch) -> tuple[Array, float, float]:
        """Return the positions of this rank's samples, their share of the global batch (0 … 1), and
        the factor of its mean gradient in the ranks' sum. A whole batch is split into nearly equal
        parts."""
        parts = np.array_split(batch, self.size) if isinstance(batch, np.ndarray) else batch
        part = parts[self.rank]
        share = len(part) / sum(map(len, parts))
        return part, share, self.gradient_factor(share)

    def gradient_factor(self, share: float) -> float:
        """Return the factor of this rank's mean gradient in the ranks' sum: ``share``, its share of
        the batch, for ``weighted``, 1 / n for ``mean``, otherwise 1."""
        return {"weighted": share, "mean": 1 / self.size}.get(self.settings.reduce, 1.0)

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Return the lazy mean loss of the samples at ``part`` (None if there are none) and their
        mean gradient times ``factor`` and the loss scale, one tensor per bucket: the part of an
        update without communication, except in `NativeDataParallel`."""
        return self.buckets.gradient(part, factor)

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Return the ranks' combined gradients, one tensor per bucket: the part of an update with
        communication, which all ranks call. ``share``, this rank's share of the batch, is for
        subclasses."""
        return [self.reduce_bucket(g, f"bucket{i}") for i, g in enumerate(gradients)]

    def finish(self, gradients: list[Tensor]) -> None:
        """Update this rank's weights with the combined gradients, one tensor per bucket, divided by
        the loss scale."""
        self.buckets.update(gradients, self.step_count)

    @property
    def has_separate_messages(self) -> bool:
        """Whether its messages are sent here one by one, so that each of them can be delayed."""
        return self.strategy.is_point_to_point

    def reduce_bucket(self, x: Tensor, bucket: str) -> Tensor:
        """Return the strategy's sum of ``x`` over the ranks, compressed as the settings say, or the
        maximum or median that they ask for instead; ``x`` may be overwritten. A straggler first
        sleeps for the messages of a native collective. All ranks call it."""
        comm, slow = self.comm, self.slow
        if slow is not None and not self.strategy.is_point_to_point:
            schedule = self.strategy.schedule(comm.size)
            pause(slow.schedule_delay(schedule, comm.rank, comm.nbytes(x), self.step_count))
        if self.top is not None:
            return self.top.sum(comm, x, bucket)
        if self.settings.compress == "fp16":
            return sum_fp16(self.strategies.get(bucket, self.strategy), comm, x)
        if self.settings.reduce in COORDINATEWISE:
            return reduce_coordinates(self.strategy, comm, x, self.settings.reduce)
        return self.strategies.get(bucket, self.strategy).sum(comm, x)

    def local_losses(self, lazy: tuple[Any, float]) -> Arrays:
        """Return this rank's own loss of one update, from its ``lazy`` pair (lazy loss, share of
        the batch), under the key ``rank``; empty if it has none."""
        return {} if lazy[0] is None else {"rank": self.backend.materialize_losses([lazy[0]])}

    # --- state, traces and memory -----------------------------------------------------------------

    def own_state(self) -> dict[str, Arrays]:
        """Return top-k's residuals, by bucket, under ``kept_back``; an empty dict without top-k
        compression."""
        return {} if self.top is None else {"kept_back": dict(self.top.residuals)}

    def restore(self, state: dict[str, Arrays], step: int) -> tuple[dict[str, Arrays], int]:
        """Take top-k's residuals, ``kept_back``, out of ``state`` and restore them; return what is
        left of ``state``, and ``step``."""
        kept = state.pop("kept_back", {})
        if self.top is not None:
            self.top.residuals = {bucket: np.array(e) for bucket, e in kept.items()}
        return state, step

    def traced_gradients(self, batch: Batch) -> Arrays | None:
        """Return the gradients of ``batch`` as the ranks combine them, by canonical name; nothing
        is updated. A collective call."""
        kept = None if self.top is None else {k: v.copy() for k, v in self.top.residuals.items()}
        gradients = self.combine(*self.own_gradients(batch))
        if self.top is not None and kept is not None:
            self.top.residuals = kept  # a trace changes nothing
        return self.model.unscale_gradients(self.buckets.unflatten(gradients))

    def local_gradient(self, batch: Batch) -> Arrays:
        """Return this rank's gradient times its factor, as it enters the sum over the ranks, by
        canonical name; nothing is updated."""
        gradients, _ = self.own_gradients(batch)
        return self.model.unscale_gradients(self.buckets.unflatten(gradients))

    def own_gradients(self, batch: Batch) -> tuple[list[Tensor], float]:
        """Return this rank's gradients times its factor and the loss scale, and its share of the
        batch; running statistics stay as they are."""
        part, share, factor = self.local_batch(batch)
        with self.model.preserving_statistics():
            return self.buckets.gradient(part, factor)[1], share

    def buffer_bytes(self) -> int | None:
        """Return the bytes of this rank's buckets and of its compression residuals."""
        kept = {} if self.top is None else self.top.residuals
        return self.buckets.bucket_bytes() + sum(e.nbytes for e in kept.values())

    # --- evaluation and the end -------------------------------------------------------------------

    def consensus(self) -> list[Tensor] | None:
        """Return the mean of all ranks' parameters, one tensor per bucket, in schemes whose ranks
        may differ; here None. All ranks call it."""
        return None

    @contextlib.contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Use the ranks' consensus of parameters, if they differ, and shared running statistics
        inside the block; then restore this rank's own and wait for all ranks."""
        mean = self.consensus()
        own = self.buckets.parameters() if mean is not None else []
        if mean is not None:
            self.buckets.assign(mean)
        with self.model.preserving_statistics():
            self.share_statistics()
            yield
        if mean is not None:
            self.buckets.assign(own)
        self.comm.barrier()  # waiting for the evaluation must not count as part of an update

    def share_statistics(self) -> None:
        """Give all ranks, which all call it, one set of running statistics (`pick_statistics`)."""
        statistics = self.model.running_statistics()
        if not statistics:
            return
        flat = np.concatenate([x.ravel() for x in statistics.values()])
        ranks = [self.comm.numpy(x) for x in self.comm.all_gather(self.comm.tensor(flat))]
        shared = self.pick_statistics(ranks)
        parts = np.split(shared, np.cumsum([x.size for x in statistics.values()])[:-1])
        self.model.load_running_statistics(
            {
                name: part.reshape(x.shape).astype(x.dtype)
                for (name, x), part in zip(statistics.items(), parts, strict=True)
            }
        )

    def pick_statistics(self, ranks: list[Array]) -> Array:
        """Return the running statistics of all ranks that are evaluated, from each rank's own:
        those of rank 0, as in `DistributedDataParallel`."""
        return ranks[0]

    def finish_training(self) -> None:
        """Replace this rank's parameters by the ranks' `consensus`, if they differ, and its running
        statistics by the shared ones. All ranks call it."""
        mean = self.consensus()
        if mean is not None:
            self.buckets.assign(mean)
        self.share_statistics()

    def summary(self) -> dict[str, Any]:
        """Return ``{"how": {collective: text}}``: for each collective of the strategy and the
        broadcast, how the communicator executes it."""
        names = (*self.strategy.uses, "broadcast")
        return {"how": {name: str(self.comm.implementation_of(name)) for name in names}}

    # --- replicas and bytes -----------------------------------------------------------------------

    def replica_divergence(self) -> list[float]:
        """Return the relative distance of each rank's weights from rank 0's (0.0 for rank 0),
        estimated by one random projection; an empty list where the method lets ranks differ. All
        ranks call it."""
        if not self.keeps_replicas:
            return []
        # One random projection of each rank's weights: its difference estimates their distance.
        flat = np.concatenate([w.ravel() for w in self.model.trainable_weights().values()])
        signs = np.random.default_rng(0).integers(0, 2, len(flat)) * 2.0 - 1.0
        own = self.comm.tensor(np.array([flat @ signs, np.linalg.norm(flat.astype(np.float64))]))
        rows = [self.comm.numpy(x) for x in self.comm.all_gather(own)]
        first, size = rows[0][0], max(float(rows[0][1]), 1e-30)
        return [float(abs(row[0] - first) / size) for row in rows]

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Return the bytes per update of all ranks together by the closed form of the
        aggregation."""
        width = np.dtype(self.backend.dtype).itemsize
        return float(aggregation_volume(self.settings, shapes, self.size, width))
