"""Local SGD: every rank updates its own parameters, which are averaged from time to time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from dualml.aggregation.all_reduce import AllReduce
from dualml.aggregation.coordinates import COORDINATEWISE
from dualml.aggregation.parallel import DataParallel
from dualml.backend import Array, Arrays, Trace
from dualml.backend.ability import Tensor


class LocalSGD(DataParallel):
    """Parameters instead of gradients, after every ``every`` updates.

    x_r ← x_r − η g_r on every rank r, and after every k-th update x_r ← Σ w_q x_q: over all ranks,
    w_q = b_q / B (samples since the last average) or 1 / n, or over the neighbours on a ring
    (D-PSGD). One k-th of the messages; in between the ranks drift apart, the more so the larger
    η k is. With k = 1, all ranks and an optimizer without memory this is the gradient of the batch
    again: an average of updates is the update of an average.

    In place of an average the ranks can take the largest or the middle of their values, entry by
    entry (``reduce`` ``max``, ``median``), or their sum, with which parameters grow n times at
    every meeting.

    The model that is evaluated and kept is the mean of all ranks'.

    Source: Stich 2019, "Local SGD Converges Fast and Communicates Little", ICLR, algorithm 1;
    Lian et al. 2017, algorithm 1, for the neighbours.

    Attributes:
        apart: one (update, divergence, drift) for each averaging where ranks differ: how far this
            rank's parameters w_r were from the average w that replaces them, as a share of the
            average, ‖w_r - w‖ / ‖w‖ (Zhao et al. 2018, "Federated Learning with Non-IID Data",
            eq. 4), and as a share of the way that the average went since the last averaging,
            ‖w_r - w‖ / ‖w - w_before‖ (client drift: Karimireddy et al. 2020, "SCAFFOLD"). The
            first averaging has no way to compare with: its drift is nan.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.apart: list[tuple[int, float, float]] = []
        self.before: list[Array] = []  # the last average
        self.samples = np.zeros(2)  # this rank's and all ranks' since then
        self.updates = 0  # of this rank: its schedule waits, too, while its epoch is over

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        loss, gradients = self.pieces.gradient(part, factor)
        if len(part):  # a rank whose epoch is over stays where it is
            self.updates += 1
            self.pieces.update(gradients, self.updates)
        return loss, gradients

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        if self.now % self.settings.every == 0:
            self.average()
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """The update was made before the ranks met."""

    def deal(self, batch: Array | Sequence[Array]) -> tuple[Array, float, float]:
        part, share, _ = super().deal(batch)
        return part, share, 1.0  # each rank follows its own gradient

    def step(self, batch: Array | Sequence[Array], step: int) -> tuple[Any, float]:
        whole = len(batch) if isinstance(batch, np.ndarray) else sum(map(len, batch))
        self.samples += [len(self.deal(batch)[0]), whole]
        return super().step(batch, step)

    @property
    def weight(self) -> float:
        """This rank's share of an average."""
        weighted = self.settings.reduce == "weighted" and self.strategy.exact
        own, total = self.samples
        return float(own / total) if weighted and total else 1 / self.comm.size

    def average(self) -> None:
        """Replace the parameters by their average over the ranks (or the neighbours), or by what
        the settings ask for in its place."""
        plain = self.settings.reduce in ("sum", *COORDINATEWISE)
        weight, own = 1.0 if plain else self.weight, self.pieces.parameters()
        before = [self.comm.numpy(p) for p in own] if self.diverges else []
        parts = [self.sum(self.comm.scale(p, weight), f"bucket{i}") for i, p in enumerate(own)]
        if self.diverges:
            self.measure(before, [self.comm.numpy(p) for p in parts])
        self.pieces.assign(parts)
        self.samples[:] = 0

    def measure(self, own: list[Array], mean: list[Array]) -> None:
        """How far this rank was from the average."""
        gap, size = _norm([a - b for a, b in zip(own, mean, strict=True)]), _norm(mean)
        way = _norm([a - b for a, b in zip(mean, self.before, strict=True)]) if self.before else 0.0
        self.apart.append((self.now, gap / size if size else nan, gap / way if way else nan))
        self.before = mean

    @property
    def diverges(self) -> bool:
        """Whether the ranks hold different parameters between two updates."""
        return self.settings.every > 1 or not self.strategy.exact

    def consensus(self) -> list[Tensor] | None:
        if not self.diverges:
            return None
        parts = [self.comm.scale(p, self.weight) for p in self.pieces.parameters()]
        return [AllReduce().sum(self.comm, p) for p in parts]

    def trace(self, batch: Array | Sequence[Array], probe: Array) -> Trace:
        """The gradient of the whole batch while the parameters agree, this rank's own otherwise."""
        part, share, _ = self.deal(batch)
        _, gradients = self.pieces.gradient(part, 1.0 if self.diverges else share)
        if not self.diverges:
            gradients = [AllReduce().sum(self.comm, g) for g in gradients]
        return Trace(*self.look(batch, probe), 0.0, dict(self.pieces.named(gradients)))

    def state(self) -> dict[str, Arrays]:
        before = {f"bucket{i}": mean for i, mean in enumerate(self.before)}
        since = {"samples": self.samples.copy(), "updates": np.array(self.updates)}
        return {**super().state(), "average": before, "since": since}

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        state = dict(state)
        before, since = state.pop("average", {}), state.pop("since", {})
        self.updates = int(since.get("updates", step))
        super().load(weights, state, self.updates)
        self.before = [np.array(before[f"bucket{i}"]) for i in range(len(before))]
        self.samples = np.array(since.get("samples", np.zeros(2)))
        self.apart = []


def _norm(parts: Sequence[Array]) -> float:
    """Euclidean norm of all elements."""
    return math.sqrt(sum(float(np.square(p, dtype=np.float64).sum()) for p in parts))
