"""Data parallel training: the global batch is split over the ranks, and their gradients are
combined.

`DataParallel` is a `Training` that wraps one training per rank: a trial uses it like a training
that has the whole batch, and every rank calls the same methods in the same order.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualml.algorithms.communicator import Communicator
from dualml.backend import (
    ActivationCapture,
    Array,
    Arrays,
    Backend,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    Training,
)
from dualml.backend.capability import GradientBuckets, Tensor
from dualml.parallel.aggregation import Strategy, strategy
from dualml.parallel.aggregation.buckets import bucket_layout
from dualml.parallel.aggregation.compress import TopK, sum_fp16
from dualml.parallel.aggregation.coordinates import COORDINATEWISE, reduce_coordinates
from dualml.parallel.aggregation.layers import layer_sizes
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.aggregation.straggler import Straggler, pause
from dualml.parallel.aggregation.times import Times


class DataParallel(Training, ActivationCapture, MemoryReport):
    """A `dualml.backend.Training` over several ranks, each with its part of the batch.

    Args:
        training, pieces: this rank's training, and its gradient buckets.
        settings: aggregation settings: the strategy, what it combines, and how often.
        slow: description of the straggler, if any.
        seed: seed of the trial, for jitter.
    """

    def __init__(
        self,
        backend: Backend,
        training: Training,
        pieces: GradientBuckets,
        comm: Communicator,
        settings: Aggregation,
        slow: Straggler | None = None,
        seed: int = 0,
    ) -> None:
        self.backend, self.training, self.buckets, self.comm = backend, training, pieces, comm
        self.observed = training.require_capability(ActivationCapture)
        self.settings, self.slow, self.seed = settings, slow, seed
        self.strategy = self.make_strategy(settings)
        self.strategies = self.make_bucket_strategies(settings)
        self.top = TopK(settings.fraction) if settings.compress == "topk" else None
        self.times, self.step_count = Times(), 0

    def make_strategy(self, settings: Aggregation) -> Strategy:
        """Return the aggregation strategy of these settings."""
        return strategy(settings.strategy)

    def make_bucket_strategies(self, settings: Aggregation) -> dict[str, Strategy]:
        """Return bucket → strategy, for settings whose chunks depend on the bucket's layers; else
        empty."""
        if settings.cut != "layers":
            return {}
        shapes = {name: weight.shape for name, weight in self.training.trainable_weights().items()}
        buckets = enumerate(bucket_layout(shapes, settings.bucket_bytes))
        return {
            f"bucket{i}": self.strategy.for_layers(layer_sizes(names, shapes))
            for i, names in buckets
        }

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Run one update; return this rank's lazy loss and its share of the global batch.

        Args:
            batch: samples of each rank, or of all, to be split into nearly equal parts.
        """
        self.step_count = step
        self.training.step_count = step - 1  # masks of Dropout depend on it
        part, share, factor = self.local_batch(batch)
        begin = time.perf_counter()
        loss, gradients = self.compute(part, factor)
        if self.slow is not None:
            spent = time.perf_counter() - begin
            pause(self.slow.compute_delay(self.comm.rank, spent, self.step_count, self.seed))
        arrive = time.perf_counter()
        with self.delay_messages():
            gradients = self.combine(gradients, share)
        end = time.perf_counter()
        self.finish(gradients)
        self.times.add(begin, arrive, end, time.perf_counter())
        self.training.step_count = step
        return loss, share

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Compute this rank's lazy loss and gradients: the part of an update without
        communication."""
        return self.buckets.gradient(part, factor)

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Return the ranks' combined gradients, one tensor per bucket: the part of an update with
        communication. ``share``, this rank's share of the batch, is for subclasses."""
        return [self.reduce_bucket(g, f"bucket{i}") for i, g in enumerate(gradients)]

    def finish(self, gradients: list[Tensor]) -> None:
        """Update this rank's weights with the combined gradients."""
        self.buckets.update(gradients, self.step_count)

    @contextlib.contextmanager
    def delay_messages(self) -> Iterator[None]:
        """Delay the straggler's messages inside this context if they are sent one by one, and none
        afterwards."""
        comm, slow = self.comm, self.slow
        if slow is not None and self.has_separate_messages:
            comm.delay = lambda sent, received: slow.transfer_delay(
                comm.rank, sent, received, self.step_count
            )
        try:
            yield
        finally:
            comm.delay = None

    @property
    def has_separate_messages(self) -> bool:
        """Whether its messages are sent here one by one, so that each of them can be delayed."""
        return self.strategy.is_point_to_point

    def local_batch(self, batch: Array | Sequence[Array]) -> tuple[Array, float, float]:
        """Return the positions of this rank's samples, their share of the global batch (0 … 1), and
        the factor of its mean gradient in the ranks' sum."""
        parts = np.array_split(batch, self.comm.size) if isinstance(batch, np.ndarray) else batch
        part = parts[self.comm.rank]
        share = len(part) / sum(map(len, parts))
        return part, share, self.gradient_factor(share)

    def gradient_factor(self, share: float) -> float:
        """Return the factor of this rank's mean gradient in the ranks' sum: ``share``, its share of
        the batch, for ``weighted``, 1 / n for ``mean``, otherwise 1."""
        return {"weighted": share, "mean": 1 / self.comm.size}.get(self.settings.reduce, 1.0)

    def reduce_bucket(self, x: Tensor, bucket: str) -> Tensor:
        """Return the strategy's sum of ``x`` over the ranks, compressed as the settings say; or the
        reduction that they ask for instead. A straggler first sleeps for the messages of a native
        collective."""
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

    # --- memory -----------------------------------------------------------------------------------

    def measure_memory(self, batch: Array | Sequence[Array] | None = None) -> MemoryUsage:
        """Count the bytes that this rank holds, including the buffers of the aggregation;
        activations are those of its part of ``batch``, 0 if that part is empty, None without a
        batch."""
        part = None if batch is None else self.local_batch(batch)[0]
        nothing = part is not None and not len(part)
        own = self.training.require_capability(MemoryReport).measure_memory(
            None if nothing else part
        )
        kept = 0 if nothing else own.activations
        return replace(own, buckets=self.buffer_bytes(), activations=kept)

    def buffer_bytes(self) -> int:
        """Return the bytes of this rank's buckets and of its compression residuals."""
        kept = {} if self.top is None else self.top.residuals
        return self.buckets.bucket_bytes() + sum(e.nbytes for e in kept.values())

    # --- traces and evaluation --------------------------------------------------------------------

    def materialize_losses(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Return the mean losses of the global batches, float64 (updates,), on every rank."""
        return gather_mean_losses(self.backend, self.comm, lazy)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> BatchTrace:
        """Return activations of this rank's model, and the gradient as the ranks combine it; the
        loss is 0, and no state changes. All ranks call it."""
        part, share, factor = self.local_batch(batch)
        with self.training.preserving_statistics():
            _, gradients = self.buckets.gradient(part, factor)
        kept = None if self.top is None else {k: v.copy() for k, v in self.top.residuals.items()}
        gradients = self.combine(gradients, share)
        if self.top is not None and kept is not None:
            self.top.residuals = kept  # a trace changes nothing
        named = self.training.unscale_gradients(self.buckets.unflatten(gradients))
        return BatchTrace(*self.capture_forward(batch, probe), 0.0, named)

    def capture_forward(self, batch: Array | Sequence[Array], probe: Array) -> tuple[str, Arrays]:
        """Run this rank's model on the samples ``probe``; return the SHA-256 of the global batch
        and the activations by layer."""
        whole = batch if isinstance(batch, np.ndarray) else np.concatenate(batch)
        return self.observed.capture_forward(whole, probe)

    def fetch_batch(self, batch: Array | Sequence[Array]) -> tuple[Array, Array]:
        """Return the samples and labels of this rank's part of ``batch`` as the model receives
        them."""
        return self.observed.fetch_batch(self.local_batch(batch)[0])

    def local_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """Return this rank's gradient times its factor, as it enters the sum over the ranks, by
        canonical name; nothing is updated."""
        part, _, factor = self.local_batch(batch)
        with self.training.preserving_statistics():
            _, gradients = self.buckets.gradient(part, factor)
        return self.training.unscale_gradients(self.buckets.unflatten(gradients))

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss and predicted classes of this rank's model, without
        communication."""
        return self.training.evaluate(x, y)

    #: Whether all ranks hold the same model (or can, by `consensus`) in an evaluation.
    replicas_identical = True
    #: Whether all ranks have to take part in the evaluation of any sample.
    collective_eval = False

    def consensus(self) -> list[Tensor] | None:
        """Return the mean of all ranks' parameters, one tensor per bucket, in schemes whose ranks
        may differ; here None. All ranks call it."""
        return None

    def weights(self) -> Arrays:
        """Return copies of this rank's weights by canonical name."""
        return self.training.weights()

    def running_statistics(self) -> Arrays:
        """Return copies of the running statistics of this rank's model."""
        return self.training.running_statistics()

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Replace the running statistics of this rank's model."""
        self.training.load_running_statistics(statistics)

    def state(self) -> dict[str, Arrays]:
        """Return this rank's optimizer state, with top-k's residuals under ``kept_back``."""
        kept = {} if self.top is None else {"kept_back": dict(self.top.residuals)}
        return {**self.training.state(), **kept}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Restore this rank's weights, optimizer state and residuals after update ``step``; step 0
        clears the recorded times."""
        state = dict(state)
        kept = state.pop("kept_back", {})
        if self.top is not None:
            self.top.residuals = {bucket: np.array(e) for bucket, e in kept.items()}
        self.training.load(weights, state, step)
        self.step_count = step
        if step == 0:
            self.times.clear()

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace this rank's weights by ``fn(weights)``."""
        self.training.transform_weights(fn)


def gather_mean_losses(
    backend: Backend, comm: Communicator, lazy: Sequence[tuple[Any, float]]
) -> Array:
    """Return the mean losses of the global batches, (updates,), on every rank: the ranks' losses,
    weighted by their shares, summed in the order of ranks.

    Args:
        lazy: for each update, this rank's loss (None without samples) and its share of the batch.
    """
    losses = np.zeros(len(lazy))
    there = [i for i, (loss, _) in enumerate(lazy) if loss is not None]
    if there:
        losses[there] = backend.materialize_losses([lazy[i][0] for i in there])
    shares = np.array([share for _, share in lazy])
    parts = comm.all_gather(comm.tensor(losses * shares))
    total: Array = np.sum([comm.numpy(part) for part in parts], axis=0)
    return total
