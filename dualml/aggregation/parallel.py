"""Data parallel training: the global batch is dealt to the ranks, what they find is combined.

`DataParallel` is a `Training` made of one per rank: a trial works with it as with one that has the
whole batch, and every rank calls the same methods in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.aggregation import strategy
from dualml.aggregation.compress import TopK, sum_half
from dualml.aggregation.pieces import Pieces, Tensor
from dualml.aggregation.slow import Slow, pause
from dualml.aggregation.times import Times
from dualml.backend import Array, Arrays, Backend, Trace, Training
from dualml.communicator import Communicator
from dualml.communicator.base import parts_of
from dualml.experiment.schema import ASYNCHRONOUS, Aggregation


class DataParallel:
    """See `dualml.backend.Training`; the same on every rank, each with its part of the batch.

    Args:
        training, pieces: this rank's model, whole and in parts.
        settings: which strategy, of what, how often.
        slow: the handicap of one rank, if any.
        seed: of the trial; for jitter.
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
        self.settings, self.slow, self.seed = settings, slow, seed
        asynchronous = settings.strategy == ASYNCHRONOUS  # messages of its own: see Asynchronous
        self.strategy = strategy("ring" if asynchronous else settings.strategy)
        self.top = TopK(settings.fraction) if settings.compress == "topk" else None
        self.times, self.now = Times(), 0
        if slow is not None and slow.rank == comm.rank and self.strategy.counted:
            comm.delay = lambda sent, received: slow.transferring(
                comm.rank, sent, received, self.now
            )

    # --- one update -------------------------------------------------------------------------------

    def step(self, batch: Array, step: int) -> tuple[Any, float]:
        """This rank's lazy loss and its share of the global batch."""
        self.now = step
        part, share, factor = self.deal(batch)
        begin = time.perf_counter()
        loss, gradients = self.pieces.gradient(part, factor)
        self.handicap(time.perf_counter() - begin)
        arrive = time.perf_counter()
        gradients = [self.sum(g, f"bucket{i}") for i, g in enumerate(gradients)]
        end = time.perf_counter()
        self.pieces.update(gradients, step)
        self.times.add(begin, arrive, end, time.perf_counter())
        return loss, share

    def deal(self, batch: Array) -> tuple[Array, float, float]:
        """This rank's samples, their share of the batch, and the factor of its gradient."""
        n, rank = self.comm.size, self.comm.rank
        sizes = parts_of(len(batch), n)
        first = sum(sizes[:rank])
        share = sizes[rank] / len(batch)
        return batch[first : first + sizes[rank]], share, self.factor(share)

    def factor(self, share: float) -> float:
        """What this rank's mean gradient is multiplied with before all are added up."""
        return {"weighted": share, "mean": 1 / self.comm.size, "sum": 1.0}[self.settings.reduce]

    def sum(self, x: Tensor, bucket: str) -> Tensor:
        """The strategy's sum over the ranks, compressed as the settings say."""
        comm, slow = self.comm, self.slow
        if slow is not None and not self.strategy.counted:
            schedule = self.strategy.schedule(comm.size)
            pause(slow.schedule_delay(schedule, comm.rank, comm.nbytes(x), self.now))
        if self.top is not None:
            return self.top.sum(comm, x, bucket)
        if self.settings.compress == "fp16":
            return sum_half(self.strategy, comm, x)
        return self.strategy.sum(comm, x)

    def handicap(self, seconds: float) -> None:
        if self.slow is not None:
            pause(self.slow.computing(self.comm.rank, seconds, self.now, self.seed))

    # --- looking ------------------------------------------------------------------------------

    def read(self, lazy: Sequence[tuple[Any, float]]) -> Array:
        """Mean losses of the global batches: every rank's, weighted, in the order of ranks."""
        losses = np.zeros(len(lazy))
        there = [i for i, (loss, _) in enumerate(lazy) if loss is not None]
        if there:
            losses[there] = self.backend.read([lazy[i][0] for i in there])
        shares = np.array([share for _, share in lazy])
        parts = self.comm.all_gather(self.comm.tensor(losses * shares))
        total: Array = np.sum([self.comm.numpy(part) for part in parts], axis=0)
        return total

    def trace(self, batch: Array, probe: Array) -> Trace:
        """Activations of this rank's model, and the gradient as the ranks combine it."""
        part, _, factor = self.deal(batch)
        _, gradients = self.pieces.gradient(part, factor)
        kept = None if self.top is None else {k: v.copy() for k, v in self.top.kept.items()}
        gradients = [self.sum(g, f"bucket{i}") for i, g in enumerate(gradients)]
        if self.top is not None and kept is not None:
            self.top.kept = kept  # a look changes nothing
        digest, activations = self.training.look(batch, probe)
        return Trace(digest, activations, 0.0, dict(self.pieces.named(gradients)))

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        return self.training.look(batch, probe)

    def evaluate(self, x: Array, y: Array) -> tuple[float, float]:
        return self.training.evaluate(x, y)

    def consensus(self) -> list[Tensor] | None:
        """The mean of all ranks' parameters where they differ, else None; all ranks call it."""
        return None

    def weights(self) -> Arrays:
        return self.training.weights()

    def state(self) -> dict[str, Arrays]:
        kept = {} if self.top is None else {"kept_back": dict(self.top.kept)}
        return {**self.training.state(), **kept}

    def load(self, weights: Arrays, state: Mapping[str, Arrays], step: int) -> None:
        state = dict(state)
        kept = state.pop("kept_back", {})
        if self.top is not None:
            self.top.kept = {bucket: np.array(e) for bucket, e in kept.items()}
        self.training.load(weights, state, step)
        if step == 0:
            self.times.clear()
