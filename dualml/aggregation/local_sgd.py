"""Local SGD: every rank updates its own parameters, which are averaged from time to time."""

from __future__ import annotations

from typing import Any

from dualml.aggregation.all_reduce import AllReduce
from dualml.aggregation.parallel import DataParallel
from dualml.aggregation.pieces import Tensor
from dualml.backend import Array, Trace


class LocalSGD(DataParallel):
    """Parameters instead of gradients, after every ``every`` updates.

    x_r ← x_r − η g_r on every rank r, and after every k-th update x_r ← Σ w_q x_q: over all ranks,
    w_q = b_q / B or 1 / n, or over the neighbours on a ring (D-PSGD). One k-th of the messages;
    in between the ranks drift apart, the more so the larger η k is. With k = 1, all ranks and an
    optimizer without memory this is the gradient of the batch again: an average of updates is the
    update of an average.

    The model that is evaluated and kept is the mean of all ranks'.

    Source: Stich 2019, "Local SGD Converges Fast and Communicates Little", ICLR, algorithm 1;
    Lian et al. 2017, algorithm 1, for the neighbours.
    """

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        loss, gradients = self.pieces.gradient(part, factor)
        self.pieces.update(gradients, self.now)
        return loss, gradients

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        if self.now % self.settings.every == 0:
            self.average(share)
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """The update was made before the ranks met."""

    def factor(self, share: float) -> float:
        return 1.0  # each rank follows its own gradient; shares count when parameters are averaged

    def average(self, share: float) -> None:
        """Replace the parameters by their average over the ranks (or the neighbours)."""
        weighted = self.settings.reduce == "weighted" and self.strategy.exact
        factor = share if weighted else 1 / self.comm.size
        own = self.pieces.parameters()
        parts = [self.sum(self.comm.scale(p, factor), f"bucket{i}") for i, p in enumerate(own)]
        self.pieces.assign(parts)

    @property
    def diverges(self) -> bool:
        """Whether the ranks hold different parameters between two updates."""
        return self.settings.every > 1 or not self.strategy.exact

    def consensus(self) -> list[Tensor] | None:
        if not self.diverges:
            return None
        factor = 1 / self.comm.size
        parts = [self.comm.scale(p, factor) for p in self.pieces.parameters()]
        return [AllReduce().sum(self.comm, p) for p in parts]

    def trace(self, batch: Array, probe: Array) -> Trace:
        """The gradient of the whole batch while the parameters agree, this rank's own otherwise."""
        part, share, _ = self.deal(batch)
        _, gradients = self.pieces.gradient(part, 1.0 if self.diverges else share)
        if not self.diverges:
            gradients = [AllReduce().sum(self.comm, g) for g in gradients]
        digest, activations = self.training.look(batch, probe)
        return Trace(digest, activations, 0.0, dict(self.pieces.named(gradients)))
