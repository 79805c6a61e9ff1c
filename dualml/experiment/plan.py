"""The plan: all inputs that must be identical across backends, frozen before a framework is
imported.

The experiment, the data and the seeds determine initial weights, sample order, subsets, and the
steps at which to evaluate and to trace. The plan is written to ``DIR/plan`` and has a hash. A
worker reads nothing else, and two run folders are comparable if their hashes agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.recompute import recompute_groups
from dualml.algorithms.model.spec import ModelSpec
from dualml.backend import TrainingSpec
from dualml.experiment.arm import Arm
from dualml.experiment.batches import (
    BatchSampler,
    EpochBatches,
    RegroupedBatches,
    SplitBatches,
    partition_key,
    rank_lists,
)
from dualml.experiment.fingerprint import hash_parts
from dualml.experiment.schema import Experiment
from dualml.parallel.split.plan import SplitPlan

Index = NDArray[np.int32]


@dataclass(frozen=True)
class EvaluationSchedule:
    """Number of ``updates`` of a trial, and the updates after which it evaluates (``evaluate``,
    from 0) and at which it records a trace (``trace``, from 1), sorted."""

    updates: int
    evaluate: list[int]
    trace: list[int]


@dataclass(frozen=True)
class Plan:
    """Frozen inputs of every trial.

    Attributes:
        experiment: the resolved experiment.
        spec: the experiment's model.
        data: name, source, sizes and fingerprint of the dataset.
        weights: ``seedN/<parameter>`` → float32.
        order: ``train``, ``test``, ``monitor`` → dataset indices, of labelled sentences also
            ``validation``; ``seedN/poolS`` → the samples of arms with ``samples = S``;
            ``seedN/poolS/epochE`` → their order; ``seedN/streamsB`` → the samples of arms whose
            state carries over, batch by batch of B; ``seedN/deal-…/epochE/rankR`` → the samples of
            a rank, in order, where an arm has a partition. Pools, epochs and ranks index into
            ``train``.
        deals: ``seedN/deal-…`` → statistics of the partition, epoch by epoch.
        models: `Arm.variant` → model, for arms with another model than the experiment's; their
            weights are ``seedN/<variant>/<parameter>``.
        splits: arm → how its model is split over the ranks.
        initial_file: ``path``, ``bytes`` and ``sha256`` of the file with the initial weights; else
            empty.
        parts: part → SHA-256; ``hash`` covers all parts.
    """

    experiment: Experiment
    spec: ModelSpec
    data: dict[str, Any]
    weights: dict[str, NDArray[np.float32]]
    order: dict[str, Index]
    parts: dict[str, str]
    deals: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    models: dict[str, ModelSpec] = field(default_factory=dict)
    splits: dict[str, SplitPlan] = field(default_factory=dict)
    initial_file: dict[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """SHA-256 of the plan, hexadecimal, over the hashes of its parts."""
        return hash_parts(self.parts)

    def spec_of(self, arm: Arm) -> ModelSpec:
        """Return the model that an arm trains: its own, or the experiment's."""
        return self.models.get(arm.variant, self.spec)

    def initial(self, seed: int, arm: Arm | None = None) -> dict[str, NDArray[np.float32]]:
        """Return name → initial weights, float32, with this seed: of the arm's own model if it has
        one, else of the experiment's."""
        own = arm.variant if arm is not None and arm.variant in self.models else ""
        spec, place = (self.models[own], f"{own}/") if own else (self.spec, "")
        return {name: self.weights[f"seed{seed}/{place}{name}"] for name in spec.tensors()}

    def pool(self, arm: Arm, seed: int) -> Index:
        """Return the samples that an arm uses with a seed, sorted, as int32 indices into the
        training set; a stateful arm has no pool."""
        return self.order[f"seed{seed}/pool{arm.samples}"]

    def batch_sampler(self, arm: Arm, seed: int) -> BatchSampler:
        """Return the sampler of an arm's batches with a seed: of its partition if it has one, of
        streams for a stateful model, else of the samples' planned order. With a partition, a single
        rank has one part per rank of the partition (`Arm.dealt_to`)."""
        key, ranks, size = partition_key(arm, seed), arm.partition_rank_count, arm.batch_size
        if arm.partition and arm.world_size not in (1, ranks):
            several = arm.world_size
            return BatchSampler(
                lambda epoch: RegroupedBatches(
                    rank_lists(self.order, key, epoch, ranks), size, several
                )
            )
        if arm.partition:
            return BatchSampler(
                lambda epoch: EpochBatches(rank_lists(self.order, key, epoch, ranks), size)
            )
        if self.spec_of(arm).stateful:
            in_order = self.order[streams_key(arm, seed)]
            return BatchSampler(lambda epoch: SplitBatches([in_order], size, arm.world_size))
        pool = self.pool(arm, seed)
        if not size:
            return BatchSampler(lambda epoch: SplitBatches([pool], 0, arm.world_size))
        orders = f"seed{seed}/pool{arm.samples}"
        return BatchSampler(
            lambda epoch: SplitBatches([self.order[f"{orders}/epoch{epoch}"]], size, arm.world_size)
        )

    def features(self, arm: Arm, seed: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the training images ``x`` as the arm's ranks see them, the same array on all
        ranks: ``x`` itself unless the arm's partition changes features."""
        rule = arm.plan_partition
        if rule is None or not rule.changes_features:
            return x
        lists = rank_lists(self.order, partition_key(arm, seed), 0, arm.partition_rank_count)
        return rule.features(x, [own.astype(np.int64) for own in lists], seed)

    def training_spec(
        self, arm: Arm, seed: int, x: NDArray[np.float32], y: NDArray[np.int64]
    ) -> TrainingSpec:
        """Return the training specification of an arm's model.

        Args:
            x, y: samples and labels of the training set.
        """
        together = arm.batch_size or len(self.pool(arm, seed))
        return TrainingSpec(
            spec=self.spec_of(arm),
            weights=self.initial(seed, arm),
            rule=arm.rule,
            schedule=arm.plan_schedule,
            loss=self.experiment.loss,
            x=self.features(arm, seed, x),
            y=y,
            updates=self.schedule(arm, seed).updates,
            chunk=arm.chunk,
            batch=together if arm.world_size == 1 else 0,
            global_batch=together,
            seed=seed,
            precision=arm.plan_precision,
            recompute=recompute_groups(self.spec_of(arm), arm.recompute),
            streams=self.streams(arm, seed),
        )

    def streams(self, arm: Arm, seed: int) -> Index | None:
        """Return the order of a stateful arm's samples, as `TrainingSpec.streams`, one row of
        ``batch_size`` samples per update; None for other arms."""
        if not self.spec_of(arm).stateful:
            return None
        return self.order[streams_key(arm, seed)].reshape(-1, arm.batch_size)

    def schedule(self, arm: Arm, seed: int) -> EvaluationSchedule:
        """Return the number of updates of an arm's trial, and the updates at which it evaluates and
        records a trace; the last traced one is the horizon."""
        per_epoch = self.batch_sampler(arm, seed).per_epoch
        updates = arm.updates or max(1, round(arm.epochs * per_epoch))
        looks = self.experiment.evaluation
        if arm.batch_size:
            every = max(1, int(per_epoch // looks.per_epoch))
            evaluate = {0, updates, *range(every, updates, every)}
            evaluate |= {step for step in looks.early if step < updates}
        else:  # an epoch is one update: the same number of looks, evenly spread
            wanted = math.ceil(looks.per_epoch * math.ceil(arm.epochs)) + len(looks.early)
            evaluate = {round(updates * i / wanted) for i in range(wanted + 1)}
        parity = self.experiment.parity
        horizon = min(parity.horizon, updates)
        if parity.share:
            budget = int(updates * parity.share) // parity.draws
            horizon = min(horizon, max(MIN_HORIZON, max_draw_horizon(budget, parity.trace)))
        trace = {step for step in parity.trace if step < horizon} | {horizon}
        return EvaluationSchedule(updates, sorted(evaluate), sorted(trace))


def streams_key(arm: Arm, seed: int) -> str:
    """Return the key in `Plan.order` of the samples of a stateful arm, whose order is the same in
    each epoch."""
    return f"seed{seed}/streams{arm.batch_size}"


#: Cost of tracing all tensors of one update, in updates: gradients are computed again.
TRACE_COST_UPDATES = 2
#: Minimum number of updates that are judged: the second one shows what the first cannot, and a few
#: more add certainty.
MIN_HORIZON = 5


def max_draw_horizon(budget: int, trace: Sequence[int]) -> int:
    """Return the largest number of updates (horizon) that one perturbed run can make in the time of
    ``budget`` updates, if it also traces the last one and those of ``trace`` before it, at
    `TRACE_COST_UPDATES` each; 0 if there is none.

    Example:
        >>> max_draw_horizon(50, trace=[1, 5, 60])  # 44 + 2·3 = 50
        44
    """

    def cost(horizon: int) -> int:
        """Return the cost of a horizon in updates."""
        return horizon + TRACE_COST_UPDATES * (1 + sum(step < horizon for step in trace))

    return next((h for h in range(budget, 0, -1) if cost(h) <= budget), 0)
