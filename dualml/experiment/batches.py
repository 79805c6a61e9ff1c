"""Batches of an arm: the samples on which each rank trains, update by update."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator.parts import part_lengths
from dualml.common.errors import UserError, prefix_errors
from dualml.experiment.arm import Arm
from dualml.parallel.partition import Samples, verify_partition
from dualml.parallel.partition.base import split_by_sizes

Index = NDArray[np.int32]


def partition_key(arm: Arm, seed: int) -> str:
    """Return the beginning of the keys under which `Plan.order` has the lists of an arm's partition
    for a seed, and the key of its statistics in `Plan.deals`; arms with equal partitions share
    it."""
    settings = json.dumps([arm.partition, arm.partition_rank_count, arm.samples], sort_keys=True)
    short = hashlib.sha256(settings.encode()).hexdigest()[:10]
    return f"seed{seed}/deal-{arm.partition.get('name')}-n{arm.partition_rank_count}-{short}"


@dataclass(frozen=True)
class EpochBatches:
    """Batches of one epoch: every rank goes through its own list, a fixed number of samples per
    update.

    A rank whose list ends early contributes nothing until the others have finished: no sample is
    lost, and none is counted twice.

    Args:
        lists: samples of each rank, in order.
        batch_size: samples per update of all ranks together; 0: all samples in one update.
    """

    lists: Sequence[NDArray[Any]]
    batch_size: int

    @functools.cached_property
    def per_rank_sizes(self) -> list[int]:
        """Samples per update from each entry of ``lists``, until that list ends: nearly equal parts
        of ``batch_size``, or the whole list if it is 0."""
        if not self.batch_size:
            return [len(own) for own in self.lists]
        return part_lengths(self.batch_size, len(self.lists))

    @property
    def updates(self) -> int:
        """Number of updates until the last of ``lists`` is used up."""
        pairs = zip(self.lists, self.per_rank_sizes, strict=True)
        return max(math.ceil(len(own) / size) for own, size in pairs if size)

    def parts(self, position: int) -> list[NDArray[Any]]:
        """Return each rank's samples of the update ``position``, from 0 in the epoch; empty for a
        rank whose list has ended."""
        return [
            own[position * size : (position + 1) * size]
            for own, size in zip(self.lists, self.per_rank_sizes, strict=True)
        ]

    def consumed(self, position: int) -> int:
        """Return the number of samples that all ranks together have used in the first ``position``
        updates of the epoch."""
        pairs = zip(self.lists, self.per_rank_sizes, strict=True)
        return sum(min(position * size, len(own)) for own, size in pairs)


class BatchSampler:
    """Samples of an arm's updates (from 1), as indices into the training set.

    Args:
        course: function of the epoch, from 0, that returns its batches; all epochs have equally
            many.

    Attributes:
        per_epoch: number of updates of an epoch.
        ranks: number of parts into which an update's samples are divided: that of ranks, or of
            the ranks of a partition (`Arm.dealt_to`) on which one rank trains alone.
    """

    def __init__(self, course: Callable[[int], EpochBatches]) -> None:
        self._course = functools.lru_cache(maxsize=2)(course)
        self.per_epoch = self._course(0).updates
        self.ranks = len(self._course(0).parts(0))

    def parts(self, step: int) -> list[NDArray[np.int64]]:
        """Return the samples of each rank in update ``step``, from 1, as int64 indices into the
        training set; updates beyond the first epoch go on in the next ones."""
        epoch, position = divmod(step - 1, self.per_epoch)
        return [part.astype(np.int64) for part in self._course(epoch).parts(position)]

    def batch(self, step: int) -> NDArray[np.int64]:
        """Return the samples of all ranks in update ``step``, from 1, concatenated in the order of
        ranks, as int64 indices into the training set."""
        parts = self.parts(step)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def count_sample_gradients(self, step: int) -> int:
        """Return the number of single-sample gradients that all ranks together compute in updates 1
        … ``step``."""
        epochs, rest = divmod(step, self.per_epoch)
        course = self._course(0)  # every epoch has as many
        return epochs * course.consumed(self.per_epoch) + course.consumed(rest)

    def samples_per_rank(self, step: int) -> list[int]:
        """Return each rank's number of samples in updates 1 … ``step``; all epochs have equal
        sizes."""
        epochs, rest = divmod(step, self.per_epoch)
        sizes = np.zeros((self.per_epoch, self.ranks), np.int64)
        for position in range(self.per_epoch if epochs else rest):
            sizes[position] = [len(part) for part in self._course(0).parts(position)]
        counts: list[int] = (epochs * sizes.sum(axis=0) + sizes[:rest].sum(axis=0)).tolist()
        return counts

    def representative_steps(self, combined: bool, updates: int) -> list[int]:
        """Return a few updates of the first epoch, numbered from 1, that together show each rank
        (or all ranks as one, if ``combined``) every batch size of the first ``updates`` updates."""
        seen: set[tuple[int, int]] = set()
        steps = []
        for position in range(min(self.per_epoch, updates)):
            sizes = [len(part) for part in self._course(0).parts(position)]
            new = set(enumerate([sum(sizes)] if combined else sizes)) - seen
            if new:
                seen |= new
                steps.append(position + 1)
        return steps


@dataclass(frozen=True)
class SplitBatches(EpochBatches):
    """Batches of one epoch without a partition: batches of one order, ``lists[0]``, each split into
    nearly equal parts for ``ranks`` ranks."""

    ranks: int = 1

    def parts(self, position: int) -> list[NDArray[Any]]:
        """Return the samples of the update ``position``, from 0: the batch from the common order,
        split into nearly equal parts, one per rank; a part may be empty."""
        whole = super().parts(position)[0]
        if self.ranks == 1:
            return [whole]
        return list(split_by_sizes(whole, part_lengths(len(whole), self.ranks)))


@dataclass(frozen=True)
class RegroupedBatches(EpochBatches):
    """Batches of one epoch that were partitioned over another number of ranks: the parts of all
    lists, concatenated and split into nearly equal parts for ``ranks`` ranks."""

    ranks: int = 1

    def parts(self, position: int) -> list[NDArray[Any]]:
        """Return the samples of the update ``position``, from 0, of all lists, concatenated and
        split into nearly equal parts, one per rank."""
        whole = np.concatenate(super().parts(position))
        return list(split_by_sizes(whole, part_lengths(len(whole), self.ranks)))


def freeze_partitions(
    name: str,
    arm: Arm,
    seed: int,
    pool: Index,
    labels: NDArray[Any] | None,
    order: dict[str, Index],
    stated: dict[str, list[dict[str, Any]]],
) -> None:
    """Partition an arm's pool for all its epochs, and add the lists and their statistics to
    ``order`` and ``stated`` in place. Lists that are already there stay; an arm without a partition
    adds nothing.

    Args:
        name: name of the arm, for messages.
        pool: the arm's samples, as indices into the training set.
        labels: labels of the training set; None if the samples have none, as in a text.
        order: `partition_key`, epoch and rank, as ``KEY/epoch0/rank0`` → list of sample indices.
        stated: `partition_key` → statistics of each epoch, as `PartitionStats.describe` returns
            them.

    Raises:
        UserError: the settings cannot be met with these samples; the text names the arm.
    """
    key, rule = partition_key(arm, seed), arm.plan_partition
    if rule is None:
        return
    ranks = arm.partition_rank_count
    samples: Samples = len(pool) if labels is None else labels[pool]
    if labels is None and (rule.needs_labels or rule.changes_features):
        what = "labels" if rule.needs_labels else "images"
        raise UserError(
            f"arms.{name}.partition: {rule.name} needs {what}, and a text has none; use one that "
            "partitions by number, such as random_partition or dirichlet_sizes"
        )
    epoch, epochs = 0, 1
    while epoch < epochs:
        if f"{key}/epoch{epoch}/rank0" not in order:
            with prefix_errors(f"arms.{name}.partition"):
                parts = rule.partition(samples, ranks, seed, epoch)
                statement = verify_partition(rule, parts, samples)
            stated.setdefault(key, []).append(statement.describe())
            for rank, part in enumerate(parts):
                order[f"{key}/epoch{epoch}/rank{rank}"] = pool[part].astype(np.int32)
        if epoch == 0:
            per_epoch = EpochBatches(rank_lists(order, key, 0, ranks), arm.batch_size).updates
            updates = arm.updates or max(1, round(arm.epochs * per_epoch))
            epochs = math.ceil(updates / per_epoch)
        epoch += 1


def rank_lists(order: Mapping[str, Index], key: str, epoch: int, ranks: int) -> list[Index]:
    """Return each rank's samples of an epoch, int32 indices into the training set; ``key`` is the
    `partition_key` of the arm."""
    return [order[f"{key}/epoch{epoch}/rank{rank}"] for rank in range(ranks)]
