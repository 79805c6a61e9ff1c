"""Local SGD: every rank updates its own parameters, which are averaged periodically."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from dualml.backend import Array, Arrays
from dualml.backend.capability import Tensor
from dualml.parallel.aggregation.all_reduce import AllReduce
from dualml.parallel.aggregation.coordinates import COORDINATEWISE
from dualml.parallel.aggregation.parallel import DataParallel
from dualml.parallel.batch import Batch, join_parts
from dualml.parallel.copies import WeightCopies


class LocalSGD(DataParallel):
    """Aggregates parameters instead of gradients, after every ``every`` updates.

    x_r ← x_r − η g_r on every rank r, and after every k-th update x_r ← Σ w_q x_q: over all ranks,
    w_q = b_q / B (samples since the last average) or 1 / n, or over the neighbours on a ring
    (D-PSGD). It sends one k-th of the messages; in between the ranks diverge, the more so the
    larger η k is. With k = 1, all ranks and a stateless optimizer it equals training with the
    gradient of the batch: an average of updates is the update of an average.

    Instead of an average the ranks can take the elementwise maximum or median of their values
    (``reduce`` ``max``, ``median``), or their sum, with which parameters grow n times at every
    aggregation.

    The model that is evaluated and saved is the mean of all ranks'.

    Source: Stich 2019, "Local SGD Converges Fast and Communicates Little", ICLR, algorithm 1; Lian
    et al. 2017, algorithm 1, for the neighbours.

    Attributes:
        divergence_log: one (update, divergence, drift) for each averaging where ranks differ: the
            distance of this rank's parameters w_r from the average w that replaces them, relative
            to the average, ‖w_r - w‖ / ‖w‖ (Zhao et al. 2018, "Federated Learning with Non-IID
            Data", eq. 4), and relative to the distance that the average moved since the last
            averaging, ‖w_r - w‖ / ‖w - w_before‖ (client drift: Karimireddy et al. 2020,
            "SCAFFOLD"). The drift of the first averaging, which has no predecessor, is nan.
    """

    keeps_replicas = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.ranks_diverge:
            self.promise = "averaged" if self.strategy.exact else "neighbours"
        self.changed_averagings = 0  # averagings that changed this rank's weights
        self.divergence_log: list[tuple[int, float, float]] = []
        self.last_average: list[Array] = []  # the last average
        self.samples = np.zeros(2)  # of this rank and of all ranks, since then
        self.updates = 0  # of this rank: its schedule pauses, too, once its epoch is over

    def compute(self, part: Array, factor: float) -> tuple[Any, list[Tensor]]:
        """Return this rank's lazy loss of the samples ``part`` and its gradients times ``factor``,
        after updating its own parameters with them; an empty part makes no update."""
        loss, gradients = self.buckets.gradient(part, factor)
        if len(part):  # a rank whose epoch is over makes no update
            self.updates += 1
            self.buckets.update(gradients, self.updates)
        return loss, gradients

    def combine(self, gradients: list[Tensor], share: float) -> list[Tensor]:
        """Average the parameters if ``step_count`` is a multiple of ``settings.every``; return
        ``gradients`` unchanged."""
        if self.step_count % self.settings.every == 0:
            self.average_parameters()
        return gradients

    def finish(self, gradients: list[Tensor]) -> None:
        """Do nothing: each rank updated its parameters before the aggregation."""

    def gradient_factor(self, share: float) -> float:
        """Return 1, whatever the ``share``: each rank follows its own gradient."""
        return 1.0

    def begin_update(self, batch: Batch) -> None:
        """Add the samples of ``batch``, this rank's and all ranks', to the counts since the last
        average, which weight the next one."""
        self.samples += [len(self.local_batch(batch)[0]), len(join_parts(batch))]

    @property
    def averaging_weight(self) -> float:
        """Weight of this rank's parameters in an average: its share of all samples since the last
        average if ``reduce`` is ``weighted``, the strategy exact and there are such samples, else
        1 / n."""
        weighted = self.settings.reduce == "weighted" and self.strategy.exact
        own, total = self.samples
        return float(own / total) if weighted and total else 1 / self.comm.size

    def average_parameters(self) -> None:
        """Replace the parameters by their average over the ranks (or the neighbours), or by the
        reduction that the settings ask for instead; start to count samples anew. All ranks call
        it."""
        plain = self.settings.reduce in ("sum", *COORDINATEWISE)
        weight, own = 1.0 if plain else self.averaging_weight, self.buckets.parameters()
        before = [self.comm.numpy(p) for p in own] if self.ranks_diverge else []
        parts = [
            self.reduce_bucket(self.comm.scale(p, weight), f"bucket{i}") for i, p in enumerate(own)
        ]
        if self.ranks_diverge:
            self.record_divergence(before, [self.comm.numpy(p) for p in parts])
        self.buckets.assign(parts)
        self.samples[:] = 0

    def record_divergence(self, own: list[Array], mean: list[Array]) -> None:
        """Append (update, divergence, drift) of this rank's parameters ``own`` from the average
        ``mean``, one array per bucket, to `divergence_log`, with nan where the norm to divide by is
        0 or there was no average before; remember ``mean`` as the last average."""
        gap, size = _norm([a - b for a, b in zip(own, mean, strict=True)]), _norm(mean)
        way = 0.0
        if self.last_average:
            way = _norm([a - b for a, b in zip(mean, self.last_average, strict=True)])
        self.divergence_log.append(
            (self.step_count, gap / size if size else nan, gap / way if way else nan)
        )
        self.last_average = mean

    @property
    def ranks_diverge(self) -> bool:
        """Whether the ranks may hold different parameters after an update: ``every`` is above 1, or
        the strategy only averages neighbours."""
        return self.settings.every > 1 or not self.strategy.exact

    def consensus(self) -> list[Tensor] | None:
        """Return the average of all ranks' parameters, each with its `averaging_weight`, one tensor
        per bucket; None if the ranks never differ. All ranks call it."""
        if not self.ranks_diverge:
            return None
        parts = [self.comm.scale(p, self.averaging_weight) for p in self.buckets.parameters()]
        return [AllReduce().sum(self.comm, p) for p in parts]

    def pick_statistics(self, ranks: list[Array]) -> Array:
        """Return the mean of all ranks' running statistics, from one flat array of each rank."""
        mean: Array = np.mean(ranks, axis=0)
        return mean

    def traced_gradients(self, batch: Batch) -> Arrays | None:
        """Return, by canonical name, the gradient of the whole batch if parameters never differ
        between ranks (all ranks then call it), otherwise of this rank's part."""
        part, share, _ = self.local_batch(batch)
        with self.model.preserving_statistics():
            _, gradients = self.buckets.gradient(part, 1.0 if self.ranks_diverge else share)
        if not self.ranks_diverge:
            gradients = [AllReduce().sum(self.comm, g) for g in gradients]
        return dict(self.buckets.unflatten(gradients))

    def own_state(self) -> dict[str, Arrays]:
        """Return top-k's residuals if there are any (`DataParallel.own_state`), the last average,
        one array per bucket (``average``), and in ``since`` the samples of this rank and of all
        since then (``samples``) and the number of this rank's updates in all (``updates``)."""
        before = {f"bucket{i}": mean for i, mean in enumerate(self.last_average)}
        since = {"samples": self.samples.copy(), "updates": np.array(self.updates)}
        return {**super().own_state(), "average": before, "since": since}

    def restore(self, state: dict[str, Arrays], step: int) -> tuple[dict[str, Arrays], int]:
        """Restore the last average and this rank's own number of updates, which may be below
        ``step``, and clear the divergence log. Return what is left of ``state`` and that number."""
        before, since = state.pop("average", {}), state.pop("since", {})
        self.updates = int(since.get("updates", step))
        self.last_average = [np.array(before[f"bucket{i}"]) for i in range(len(before))]
        self.samples = np.array(since.get("samples", np.zeros(2)))
        self.divergence_log = []
        return super().restore(state, self.updates)

    def pop_measurements(self) -> list[tuple[int, str, float]]:
        """Return ``divergence`` and ``drift`` of each averaging since the last call, as (update,
        metric, value), and clear their log."""
        measured, self.divergence_log = self.divergence_log, []
        self.changed_averagings += sum(divergence > 0 for _, divergence, _ in measured)
        return [
            (step, metric, value)
            for step, divergence, drift in measured
            for metric, value in (("divergence", divergence), ("drift", drift))
        ]

    def steps_to_compare(self, first: int, last: int) -> list[int]:
        """Return the first and last averaging among the updates ``first`` … ``last``, after which
        the weights of all ranks are equal; an empty list if there is none. Where ranks never
        differ, or only neighbours average, return ``first`` and ``last``."""
        if self.promise != "averaged":
            return super().steps_to_compare(first, last)
        every = self.settings.every
        averagings = range(-(-first // every) * every, last + 1, every)
        return sorted({averagings[0], averagings[-1]}) if averagings else []

    def copies(self) -> WeightCopies | None:
        """Return all trainable weights of this rank, by name; where ranks average only with
        neighbours, by keys that contain the rank, so that no two ranks' weights are compared."""
        if self.promise != "neighbours":
            return super().copies()
        weights = self.model.trainable_weights()
        return WeightCopies({f"{name} of rank {self.rank}": w for name, w in weights.items()})

    def expected_sent_bytes(
        self, shapes: Mapping[str, tuple[int, ...]], first: int, last: int, samples: int
    ) -> float | None:
        """Return the bytes that all ranks together send per update by the closed form of the
        aggregation, times the share of the updates ``first`` … ``last`` that average."""
        each = super().expected_sent_bytes(shapes, first, last, samples)
        share = self.count_averagings(first, last) / (last - first + 1)
        return None if each is None else share * each

    def effective_averagings(self, first: int, last: int) -> float | None:
        """Return the share (0 … 1) of averagings in the updates ``first`` … ``last`` that changed
        this rank's weights, where ranks average with neighbours; None elsewhere, or without an
        averaging. Only averagings already read by `pop_measurements` count as changes."""
        asked = self.count_averagings(first, last)
        return self.changed_averagings / asked if self.promise == "neighbours" and asked else None

    def count_averagings(self, first: int, last: int) -> int:
        """Return the number of averagings in the updates ``first`` … ``last``."""
        return last // self.settings.every - (first - 1) // self.settings.every


def _norm(parts: Sequence[Array]) -> float:
    """Return the Euclidean norm of all elements."""
    return math.sqrt(sum(float(np.square(p, dtype=np.float64).sum()) for p in parts))
