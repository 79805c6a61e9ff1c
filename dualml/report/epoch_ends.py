"""Epochs that end after different numbers of updates on different ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.common.words import Messages, numbers
from dualml.experiment.batches import EpochBatches
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Cell, Table
from dualml.report.columns import Columns, tabulate
from dualml.report.presentation import shorten_list
from dualml.report.run_partitions import PartitionSummary, list_partitions, partitioned_arms

MAX_NAMED_ARMS = 3  # named below a partition
#: Maximum number of values that are kept on one line.
MAX_VALUES_PER_LINE = 4


class UnevenEpoch:
    """The first epoch of a partition, for arms with one batch size.

    ``each``: samples of each rank in an update as long as it has any left; ``ends``: number of
    updates after which each rank has none left, of the epoch's ``updates``; ``last``: samples of
    all ranks in the last update.
    """

    def __init__(self, deal: PartitionSummary, arms: Sequence[str], batch_size: int) -> None:
        sizes = deal.first_epoch["sizes"]
        epoch = EpochBatches([np.zeros(size, np.int8) for size in sizes], batch_size)
        self.deal, self.arms, self.each, self.updates = (
            deal,
            arms,
            epoch.per_rank_sizes,
            epoch.updates,
        )
        pairs = zip(sizes, self.each, strict=True)
        self.ends = [-(-size // most) if most else 0 for size, most in pairs]
        self.last = sum(len(part) for part in epoch.parts(self.updates - 1))
        #: The first rank without samples left, of those that had any.
        self.first = self.ends.index(min((end for end in self.ends if end), default=0))
        self.end = self.ends[self.first]
        self.seen = deal.first_epoch["samples"] - deal.first_epoch["missed"]
        #: Whether every sample occurs exactly once.
        self.whole = not any(deal.first_epoch[key] for key in ("missed", "repeated", "shared"))

    @property
    def ends_in_line(self) -> str:
        """The numbers of updates after which rank 0, 1, … has no samples left, as text."""
        return join_counts(self.ends)

    @property
    def batch(self) -> int:
        """Number of samples of all ranks together in an update in which every rank has samples
        left."""
        return sum(self.each)


def uneven_epochs(run: RunData) -> list[UnevenEpoch]:
    """Return the first epoch of each partition on which an arm trained for a whole epoch and some
    ranks ended at least two updates before others, one for each batch size."""
    every, trained = [], partitioned_arms(run)
    for deal in list_partitions(run):
        by_batch: dict[int, list[str]] = {}
        for arm in (arm for arm in deal.arms if arm in trained):
            by_batch.setdefault(int(run.arms[arm].get("batch_size", 64)), []).append(arm)
        for batch_size, arms in by_batch.items():
            u = UnevenEpoch(deal, arms, batch_size)
            updates = max(t.updates or 0 for a in arms for t in run.select(a))
            if max(u.ends) > min(u.ends) + 1 and updates >= u.updates:
                every.append(u)
    return every


def uneven_table(run: RunData, words: Messages) -> Iterator[Table]:
    """Yield the table of uneven epochs; nothing if there are none."""
    every = uneven_epochs(run)
    read: Columns[UnevenEpoch] = {
        "`partition`": lambda u: Cell(
            u.deal.text, note=", ".join(shorten_list(u.arms, words, MAX_NAMED_ARMS))
        ),
        "samples_ranks": lambda u: join_counts(u.deal.first_epoch["sizes"]),
        "each_ranks": lambda u: (
            join_counts(u.each) if len(set(u.each)) > 1 else f"{len(u.each)} × {u.each[0]}"
        ),
        "ends_ranks": lambda u: u.ends_in_line,
        "epoch_updates:count": lambda u: u.updates,
        "first_through:updates": lambda u: Cell(
            numbers.quantity(u.end), note=words("value.rank", rank=u.first)
        ),
        "last_update:samples": lambda u: u.last,
        "seen_once": lambda u: _coverage_cell(u, words),
    }
    if every:
        yield from tabulate(words, "uneven", every, read, seed=every[0].deal.seed)


def _coverage_cell(u: UnevenEpoch, words: Messages) -> Cell:
    """Return the cell with the number of different samples seen in the first epoch, green if each
    sample of the dataset is seen exactly once, else red."""
    n, of = (numbers.quantity(v) for v in (u.seen, u.deal.first_epoch["samples"]))
    share = words("value.of", n=n, of=of)
    return Cell(f"✓ {share}", "good") if u.whole else Cell(f"≠ {share}", "bad")


def join_counts(values: Sequence[int]) -> str:
    """Return the values of rank 0, 1, … as text, separated by dots; a few cannot be broken over
    lines."""
    dot = "\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}" if len(values) <= MAX_VALUES_PER_LINE else " · "
    return dot.join(numbers.quantity(v) for v in values)
