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

from dualml.aggregation import Strategy, strategy
from dualml.aggregation.buckets import layout
from dualml.aggregation.compress import TopK, sum_half
from dualml.aggregation.coordinates import COORDINATEWISE, reduce_coordinates
from dualml.aggregation.layers import layer_sizes
from dualml.aggregation.settings import Aggregation
from dualml.aggregation.slow import Slow, pause
from dualml.aggregation.times import Times
from dualml.backend import Array, Arrays, Backend, Memory, Observable, Trace, Training, Weighable
from dualml.backend.ability import Pieces, Tensor
from dualml.communicator import Communicator


class DataParallel(Training, Observable, Weighable):
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
        pieces: Pieces,
        comm: Communicator,
        settings: Aggregation,
        slow: Slow | None = None,
        seed: int = 0,
    ) -> None:
        self.backend, self.training, self.pieces, self.comm = backend, training, pieces, comm
        self.observed = training.ability(Observable)
        self.settings, self.slow, self.seed = settings, slow, seed
        self.strategy = self.strategy_of(settings)
        self.strategies = self.strategies_of(settings)
        self.top = TopK(settings.fraction) if settings.compress == "topk" else None
        self.times, self.now = Times(), 0

    def strategy_of(self, settings: Aggregation) -> Strategy:
        """Return the aggregation strategy of these settings."""
        return strategy(settings.strategy)

    def strategies_of(self, settings: Aggregation) -> dict[str, Strategy]:
        """Return bucket → strategy, for settings whose chunks depend on the bucket's layers; else
        empty."""
        if settings.cut != "layers":
            return {}
        shapes = {name: weight.shape for name, weight in self.training.learned().items()}
        buckets = enumerate(layout(shapes, settings.bucket_bytes))
        return {
            f"bucket{i}": self.strategy.on_layers(layer_sizes(names, shapes))
            for i, names in buckets
        }

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        """Run one update; return this rank's lazy loss and its share of the global batch.

        Args:
            batch: samples of each rank, or of all, to be split into nearly equal parts.
        """
        self.now = step
        self.training.now = step - 1  # masks of Dropout depend on it
        part, share, factor = self.deal(batch)
        begin = time.perf_counter()
        loss, gradients = self.compute(part, factor)
        if self.slow is not None:
            spent = time.perf_counter() - begin
            pause(self.slow.computing(self.comm.rank, spent, self.now, self.seed))
        arrive = time.perf_counter()
        with self.slow_messages():
            gradients = self.combine(gradients, share)
        end = time.perf_counter()
        self.finish(gradients)
        self.times.add(begin, arrive, end, time.perf_counter())
        self.training.now = step
        return loss, share

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Compute this rank's lazy loss and gradients: the part of an update without
        communication."""
        return self.pieces.gradient(part, factor)

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Combine the ranks' gradients: the part of an update with communication."""
        return [self.sum(g, f"bucket{i}") for i, g in enumerate(gradients)]

    def finish(self, gradients: list[Tensor]) -> None:
        """Apply the combined gradients on this rank."""
        self.pieces.update(gradients, self.now)

    @contextlib.contextmanager
    def slow_messages(self) -> Iterator[None]:
        """Delay the straggler's messages inside this context, and nowhere else."""
        comm, slow = self.comm, self.slow
        if slow is not None and self.by_message:
            comm.delay = lambda sent, received: slow.transferring(
                comm.rank, sent, received, self.now
            )
        try:
            yield
        finally:
            comm.delay = None

    @property
    def by_message(self) -> bool:
        """Whether its messages are sent here one by one, so that each of them can be delayed."""
        return self.strategy.counted

    def deal(self, batch: Array | Sequence[Array]) -> tuple[Array, float, float]:
        """Return this rank's samples, their share of the batch, and the factor of its gradient."""
        parts = np.array_split(batch, self.comm.size) if isinstance(batch, np.ndarray) else batch
        part = parts[self.comm.rank]
        share = len(part) / sum(map(len, parts))
        return part, share, self.factor(share)

    def factor(self, share: float) -> float:
        """Return the factor of this rank's mean gradient in the ranks' sum."""
        return {"weighted": share, "mean": 1 / self.comm.size}.get(self.settings.reduce, 1.0)

    def sum(self, x: Tensor, bucket: str) -> Tensor:
        """Return the strategy's sum over the ranks, compressed as the settings say; or the
        reduction that they ask for instead."""
        comm, slow = self.comm, self.slow
        if slow is not None and not self.strategy.counted:
            schedule = self.strategy.schedule(comm.size)
            pause(slow.schedule_delay(schedule, comm.rank, comm.nbytes(x), self.now))
        if self.top is not None:
            return self.top.sum(comm, x, bucket)
        if self.settings.compress == "fp16":
            return sum_half(self.strategies.get(bucket, self.strategy), comm, x)
        if self.settings.reduce in COORDINATEWISE:
            return reduce_coordinates(self.strategy, comm, x, self.settings.reduce)
        return self.strategies.get(bucket, self.strategy).sum(comm, x)

    # --- memory -----------------------------------------------------------------------------------

    def memory(self, batch: Array | Sequence[Array] | None = None) -> Memory:
        """Count the bytes that this rank holds, including the buffers of the aggregation."""
        part = None if batch is None else self.deal(batch)[0]
        nothing = part is not None and not len(part)
        own = self.training.ability(Weighable).memory(None if nothing else part)
        kept = 0 if nothing else own.activations
        return replace(own, buckets=self.buffers(), activations=kept)

    def buffers(self) -> int:
        """Return the bytes of buckets and of compression residuals."""
        kept = {} if self.top is None else self.top.kept
        return self.pieces.held() + sum(e.nbytes for e in kept.values())

    # --- traces and evaluation --------------------------------------------------------------------

    def read(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        return over_ranks(self.backend, self.comm, lazy)

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> Trace:
        """Return activations of this rank's model, and the gradient as the ranks combine it."""
        part, share, factor = self.deal(batch)
        with self.training.preserving_statistics():
            _, gradients = self.pieces.gradient(part, factor)
        kept = None if self.top is None else {k: v.copy() for k, v in self.top.kept.items()}
        gradients = self.combine(gradients, share)
        if self.top is not None and kept is not None:
            self.top.kept = kept  # a trace changes nothing
        named = self.training.unscaled(self.pieces.named(gradients))
        return Trace(*self.look(batch, probe), 0.0, named)

    def look(self, batch: Array | Sequence[Array], probe: Array) -> tuple[str, Arrays]:
        whole = batch if isinstance(batch, np.ndarray) else np.concatenate(batch)
        return self.observed.look(whole, probe)

    def given(self, batch: Array | Sequence[Array]) -> tuple[Array, Array]:
        """Return this rank's samples and labels as the model receives them."""
        return self.observed.given(self.deal(batch)[0])

    def own_gradient(self, batch: Array | Sequence[Array]) -> Arrays:
        """Return this rank's gradient as it enters the sum; empty where it cannot be observed."""
        part, _, factor = self.deal(batch)
        with self.training.preserving_statistics():
            _, gradients = self.pieces.gradient(part, factor)
        return self.training.unscaled(self.pieces.named(gradients))

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        return self.training.evaluate(x, y)

    #: Whether all ranks hold the same model (or can, by `consensus`) in an evaluation.
    alike = True
    #: Whether all ranks have to take part in the evaluation of any sample.
    together = False

    def consensus(self) -> list[Tensor] | None:
        """Return the mean of all ranks' parameters where they differ, else None; all ranks call
        it."""
        return None

    def weights(self) -> Arrays:
        return self.training.weights()

    def running_statistics(self) -> Arrays:
        return self.training.running_statistics()

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        self.training.load_running_statistics(statistics)

    def state(self) -> dict[str, Arrays]:
        kept = {} if self.top is None else {"kept_back": dict(self.top.kept)}
        return {**self.training.state(), **kept}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        state = dict(state)
        kept = state.pop("kept_back", {})
        if self.top is not None:
            self.top.kept = {bucket: np.array(e) for bucket, e in kept.items()}
        self.training.load(weights, state, step)
        self.now = step
        if step == 0:
            self.times.clear()

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self.training.move(by)


def over_ranks(backend: Backend, comm: Communicator, lazy: Sequence[tuple[Any, float]]) -> Array:
    """Return the mean losses of the global batches, (updates,): the ranks' losses, weighted by
    their shares, summed in the order of ranks.

    Args:
        lazy: for each update, this rank's loss (None without samples) and its share of the batch.
    """
    losses = np.zeros(len(lazy))
    there = [i for i, (loss, _) in enumerate(lazy) if loss is not None]
    if there:
        losses[there] = backend.read([lazy[i][0] for i in there])
    shares = np.array([share for _, share in lazy])
    parts = comm.all_gather(comm.tensor(losses * shares))
    total: Array = np.sum([comm.numpy(part) for part in parts], axis=0)
    return total
