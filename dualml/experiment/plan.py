"""The plan: all that must be identical across backends, frozen before a framework is imported.

From the experiment, the data and the seeds: initial weights, sample order, subsets, the steps at
which to evaluate and to trace. It is written to ``DIR/plan`` and has a hash; a worker reads nothing
else, and two run folders are comparable when their hashes agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import Recipe
from dualml.experiment.arm import Arm
from dualml.experiment.deals import Course, Feed, Regrouped, Shared, deal_key, lists_of
from dualml.experiment.fingerprint import hash_of
from dualml.experiment.schema import Experiment
from dualml.model.recompute import recomputed
from dualml.model.spec import ModelSpec
from dualml.split.plan import SplitPlan

Index = NDArray[np.int32]


@dataclass(frozen=True)
class Schedule:
    """Updates at which a trial stops to look: all sorted, ``evaluate`` from 0, ``trace`` from 1."""

    updates: int
    evaluate: list[int]
    trace: list[int]


@dataclass(frozen=True)
class Plan:
    """Frozen inputs of every trial.

    Attributes:
        experiment: the resolved experiment.
        spec: the model.
        data: name, source, sizes and fingerprint of the dataset.
        weights: ``seedN/<parameter>`` → float32.
        order: ``train``, ``test``, ``monitor`` → dataset indices, of labelled sentences also
            ``validation``; ``seedN/poolS`` → the samples of
            arms with ``samples = S``; ``seedN/poolS/epochE`` → their order;
            ``seedN/streamsB`` → the samples of arms whose state goes on, batch by batch of B;
            ``seedN/deal-…/epochE/rankR`` → the samples of a rank, in order, where an arm has a
            partition. Pools, epochs and ranks index into ``train``.
        deals: ``seedN/deal-…`` → what the partition turned out to be, epoch by epoch.
        models: `Arm.variant` → model, of arms that have another one than the experiment; their
            weights are ``seedN/<variant>/<parameter>``.
        splits: arm → how its ranks share the model.
        initial_file: ``path``, ``bytes`` and ``sha256`` of the file that the weights are from.
        parts: part → SHA-256; ``hash`` is that of all parts.
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
        return hash_of(self.parts)

    def spec_of(self, arm: Arm) -> ModelSpec:
        """The arm's model."""
        return self.models.get(arm.variant, self.spec)

    def initial(self, seed: int, arm: Arm | None = None) -> dict[str, NDArray[np.float32]]:
        """Initial weights of the experiment's model, or of an arm's."""
        own = arm.variant if arm is not None and arm.variant in self.models else ""
        spec, place = (self.models[own], f"{own}/") if own else (self.spec, "")
        return {name: self.weights[f"seed{seed}/{place}{name}"] for name in spec.tensors()}

    def pool(self, arm: Arm, seed: int) -> Index:
        return self.order[f"seed{seed}/pool{arm.samples}"]

    def feed(self, arm: Arm, seed: int) -> Feed:
        """Which samples the arm's updates train on."""
        key, ranks, size = deal_key(arm, seed), arm.dealt_ranks, arm.batch_size
        if arm.partition and arm.world_size not in (1, ranks):
            several = arm.world_size
            return Feed(
                lambda epoch: Regrouped(lists_of(self.order, key, epoch, ranks), size, several)
            )
        if arm.partition:
            return Feed(lambda epoch: Course(lists_of(self.order, key, epoch, ranks), size))
        if self.spec_of(arm).stateful:
            in_order = self.order[streams_key(arm, seed)]
            return Feed(lambda epoch: Shared([in_order], size, arm.world_size))
        pool = self.pool(arm, seed)
        if not size:
            return Feed(lambda epoch: Shared([pool], 0, arm.world_size))
        orders = f"seed{seed}/pool{arm.samples}"
        return Feed(
            lambda epoch: Shared([self.order[f"{orders}/epoch{epoch}"]], size, arm.world_size)
        )

    def features(self, arm: Arm, seed: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The training images as the arm's ranks see them: the same array on all of them."""
        rule = arm.plan_partition
        if rule is None or not rule.changes_features:
            return x
        lists = lists_of(self.order, deal_key(arm, seed), 0, arm.dealt_ranks)
        return rule.features(x, [own.astype(np.int64) for own in lists], seed)

    def recipe(self, arm: Arm, seed: int, x: NDArray[np.float32], y: NDArray[np.int64]) -> Recipe:
        """What the arm's model is trained with.

        Args:
            x, y: the training set.
        """
        together = arm.batch_size or len(self.pool(arm, seed))
        return Recipe(
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
            recompute=recomputed(self.spec_of(arm), arm.recompute),
            streams=self.streams(arm, seed),
        )

    def streams(self, arm: Arm, seed: int) -> Index | None:
        """As of `Recipe.streams`."""
        if not self.spec_of(arm).stateful:
            return None
        return self.order[streams_key(arm, seed)].reshape(-1, arm.batch_size)

    def schedule(self, arm: Arm, seed: int) -> Schedule:
        per_epoch = self.feed(arm, seed).per_epoch
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
            horizon = min(horizon, max(LEAST, most_drawn(budget, parity.trace)))
        trace = {step for step in parity.trace if step < horizon} | {horizon}
        return Schedule(updates, sorted(evaluate), sorted(trace))


def streams_key(arm: Arm, seed: int) -> str:
    """Where the order of a stateful arm's samples is in the plan's order: the same in each
    epoch."""
    return f"seed{seed}/streams{arm.batch_size}"


#: Updates that a look at all tensors of one takes as long as: their gradients are computed again.
LOOK = 2
#: Updates that are always judged: what only shows at the second, and some more.
LEAST = 5


def most_drawn(budget: int, trace: Sequence[int]) -> int:
    """The longest horizon that one draw reaches in the time of ``budget`` updates, looks included;
    0 if there is none.

    Example:
        >>> most_drawn(50, trace=[1, 5, 60])  # 44 + 2·3 = 50
        44
    """

    def cost(horizon: int) -> int:
        return horizon + LOOK * (1 + sum(step < horizon for step in trace))

    return next((h for h in range(budget, 0, -1) if cost(h) <= budget), 0)
