"""Data parallel training: the global batch is dealt to the ranks, what they find is combined.

`DataParallel` is a `Training` made of one per rank: a trial works with it as with one that has the
whole batch, and every rank calls the same methods in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.aggregation import AllReduce, strategy
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
        of_parameters = self.settings.of == "parameters"
        if of_parameters:
            self.pieces.update(gradients, step)
        self.handicap(time.perf_counter() - begin)
        arrive = time.perf_counter()
        if not of_parameters:
            gradients = [self.sum(g, f"bucket{i}") for i, g in enumerate(gradients)]
            end = time.perf_counter()
            self.pieces.update(gradients, step)
        elif step % self.settings.every == 0:
            self.average(share)
            end = time.perf_counter()
        else:
            end = arrive
        self.times.add(begin, arrive, end, time.perf_counter())
        return loss, share

    def deal(self, batch: Array) -> tuple[Array, float, float]:
        """This rank's samples, their share of the batch, and the factor of its gradient."""
        n, rank = self.comm.size, self.comm.rank
        sizes = parts_of(len(batch), n)
        first = sum(sizes[:rank])
        share = sizes[rank] / len(batch)
        if self.settings.of == "parameters":
            return batch[first : first + sizes[rank]], share, 1.0
        factor = {"weighted": share, "mean": 1 / n, "sum": 1.0}[self.settings.reduce]
        return batch[first : first + sizes[rank]], share, factor

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

    def average(self, share: float) -> None:
        """Replace the parameters by their average over the ranks (or the neighbours)."""
        weighted = self.settings.reduce == "weighted" and self.strategy.exact
        factor = share if weighted else 1 / self.comm.size
        own = self.pieces.parameters()
        # A strategy that is not exact sums over some ranks only, and weighs its own tensor alike.
        parts = [self.sum(self.comm.scale(p, factor), f"bucket{i}") for i, p in enumerate(own)]
        self.pieces.assign(parts)

    def handicap(self, seconds: float) -> None:
        if self.slow is not None:
            pause(self.slow.computing(self.comm.rank, seconds, self.now, self.seed))

    @property
    def diverges(self) -> bool:
        """Whether the ranks hold different parameters between two updates."""
        s = self.settings
        return s.of == "parameters" and (s.every > 1 or not self.strategy.exact)

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
        """Activations of this rank's model, and the gradient as the ranks combine it.

        Where they combine parameters it is the exact gradient of the batch while the parameters
        agree, and this rank's own where they do not.
        """
        part, share, factor = self.deal(batch)
        combined = self.settings.of == "gradients"
        own = factor if combined else 1.0 if self.diverges else share
        _, gradients = self.pieces.gradient(part, own)
        if combined:
            kept = None if self.top is None else {k: v.copy() for k, v in self.top.kept.items()}
            gradients = [self.sum(g, f"bucket{i}") for i, g in enumerate(gradients)]
            if self.top is not None and kept is not None:
                self.top.kept = kept  # a look changes nothing
        elif not self.diverges:
            gradients = [AllReduce().sum(self.comm, g) for g in gradients]
        named = self.pieces.named(gradients)
        digest, activations = self.training.look(batch, probe)
        return Trace(digest, activations, 0.0, dict(named))

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        return self.training.look(batch, probe)

    def evaluate(self, x: Array, y: Array) -> tuple[float, float]:
        return self.training.evaluate(x, y)

    def consensus(self) -> list[Tensor] | None:
        """The mean of all ranks' parameters where they differ, else None; all ranks call it."""
        if not self.diverges:
            return None
        factor = 1 / self.comm.size
        parts = [self.comm.scale(p, factor) for p in self.pieces.parameters()]
        return [AllReduce().sum(self.comm, p) for p in parts]

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
