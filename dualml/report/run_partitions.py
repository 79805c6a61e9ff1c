"""Partitions of the dataset over ranks, as used in a run: which arms share one, and its
statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualml.common.json_types import JsonMapping
from dualml.common.words import numbers
from dualml.common.words.numbers import plain
from dualml.experiment.store.run import RunData, partition_key_of
from dualml.report import ranks

EpochStats = Mapping[str, Any]
#: Settings that are not printed if they have these default values.
USUAL: Mapping[str, Any] = {
    "shuffle": True,
    "least": 1,
    "tries": 1000,
    "assigned": [],
    "replacement": True,
    "drop_last": False,
    "whole": False,
}
#: Rules that make the ranks' labels or features differ by intention.
SKEWED = ("label_shards", "label_classes", "dirichlet_labels", "feature_noise")


@dataclass(frozen=True)
class PartitionSummary:
    """A partition over ``ranks`` ranks, the arms that train on it, and its statistics for each
    seed.

    ``epoch_stats``: seed → the statistics of each epoch, with the fields of
    `dualml.parallel.partition.PartitionStats` as keys.
    """

    settings: Mapping[str, Any]
    ranks: int
    arms: tuple[str, ...]
    epoch_stats: Mapping[int, tuple[EpochStats, ...]]

    @property
    def text(self) -> str:
        """The partition rule with its settings, on one line."""
        return format_settings(self.settings)

    @property
    def seed(self) -> int:
        """The smallest seed, which is shown if only one is."""
        return min(self.epoch_stats)

    @property
    def first_epoch(self) -> EpochStats:
        """Statistics of the first epoch of `seed`, with the fields of `PartitionStats` as keys."""
        return self.epoch_stats[self.seed][0]

    @property
    def all_epochs(self) -> list[EpochStats]:
        """Statistics of every epoch of every seed, each with the fields of `PartitionStats` as
        keys."""
        return [s for epoch_stats in self.epoch_stats.values() for s in epoch_stats]

    def mean(self, what: str) -> float | None:
        """Return the mean of a count, the field ``what`` of `PartitionStats`, over epochs and
        seeds, None if it is unknown."""
        return numbers.mean([s.get(what) for s in self.all_epochs])

    def skew(self, what: str = "emd") -> tuple[float | None, float | None]:
        """Return mean and maximum of a skew measure, the field ``what`` of `PartitionStats` with a
        value per rank, over ranks, epochs and seeds; ranks without samples are ignored. Two Nones
        if it is unknown."""
        known = [
            v for s in self.all_epochs for v in s.get(what) or () if numbers.is_finite_number(v)
        ]
        return (sum(known) / len(known), max(known)) if known else (None, None)


def partition_settings(run: RunData, arm: str) -> Mapping[str, Any]:
    """Return the arm's partition rule with its settings; empty if batches of one order are split
    over ranks."""
    return run.arms[arm].get("partition") or {}


def partition_rule(run: RunData, arm: str) -> str:
    """Return the name of the arm's partition rule, empty without one."""
    return str(partition_settings(run, arm).get("name") or "")


def format_settings(settings: JsonMapping) -> str:
    """Return a partition rule with its settings, such as ``label_shards shards=2``. Settings of
    `USUAL` at the value given there are left out, and so is the name of a setting that is called
    like the rule."""
    name = str(settings.get("name"))
    kept = {k: v for k, v in settings.items() if k != "name" and USUAL.get(k, ...) != v}
    named = [plain(v) if k == name else f"{k}={plain(v)}" for k, v in kept.items()]
    return " ".join([name, *named])


def list_partitions(run: RunData) -> list[PartitionSummary]:
    """Return every distinct partition of the run that has statistics, in the order of the arms;
    also of arms whose trials all failed, because partitions are in the plan."""
    by_key: dict[str, list[str]] = {}
    for arm in run.arms:
        by_key.setdefault(partition_key_of(run.arms[arm], 0), []).append(arm)
    every = []
    for arms in (arms for key, arms in by_key.items() if key):
        # Arms of different lengths share the statistics; the longest has every epoch.
        stated = {seed: each for seed in run.seeds if (each := run.deals(arms[0], seed))}
        n = int(run.arms[arms[0]].get("dealt_to") or ranks.world_size(run, arms[0]))
        if stated:
            every.append(PartitionSummary(partition_settings(run, arms[0]), n, tuple(arms), stated))
    return every


def find_partition(run: RunData, arm: str) -> PartitionSummary | None:
    """Return the partition on which ``arm`` trains, None without one or without statistics of
    it."""
    return next((d for d in list_partitions(run) if arm in d.arms), None)


def partitioned_arms(run: RunData) -> list[str]:
    """Return the training arms with several ranks and a partition that are not split into stages or
    slices and have a successful trial."""
    return [a for a in ranks.multi_rank_arms(run) if partition_settings(run, a) and run.select(a)]


def same_samples(run: RunData, arms: tuple[str, ...]) -> tuple[int, int]:
    """Return in how many cases all backends trained on the same samples in the same order, and in
    how many cases (arm and seed) at least two of them recorded it."""
    alike = compared = 0
    for arm in arms:
        for seed in run.seeds:
            recorded = [t.samples_sha256 for t in run.select(arm) if t.seed == seed]
            known = [sha256 for sha256 in recorded if sha256]
            compared += len(known) > 1
            alike += len(known) > 1 and len(set(known)) == 1
    return alike, compared
