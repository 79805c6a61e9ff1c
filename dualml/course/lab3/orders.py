"""Orders in which a rank goes through its part, and what they depend on.

The first order of a part is not known, but the change from one epoch's order to the next one's is:
a permutation of positions. If it does not depend on the seed, the order does not either.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import SampleLists, Violation

#: Smallest size of a part whose orders are compared: two of 15 samples agree by chance once in 10¹²
#: times.
MIN_PART = 15


def order_change(a: Array, b: Array) -> Array | None:
    """Return the positions in ``a`` of the samples of ``b``; None unless both have the same
    samples, each once, and at least `MIN_PART`."""
    if len(a) < MIN_PART or not np.array_equal(np.sort(a), np.sort(b)) or len(set(a)) < len(a):
        return None
    changed: Array = np.argsort(a)[np.searchsorted(np.sort(a), b)]
    return changed


def order_changes(lists: SampleLists, rank: int, seed: int) -> list[Array | None]:
    """Return a rank's change of order from each requested epoch to the next one."""
    return [order_change(a, b) for a, b in pairwise(lists.epoch_lists(rank, seed))]


def equal_changes(
    lists: SampleLists, rank: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield pairs ((seed, i), (other, j)), with a larger seed ``other``, for which this rank's
    change of order from epoch i to the next one is that from epoch j to the next one; i and j count
    the requested epochs from 0."""
    changes = {
        (seed, i): change
        for seed in lists.seeds
        for i, change in enumerate(order_changes(lists, rank, seed))
        if change is not None
    }
    for one, other in product(changes, repeat=2):
        if one[0] < other[0] and np.array_equal(changes[one], changes[other]):
            yield one, other


def check_order_changes_follow_seed(lists: SampleLists) -> Violation | None:
    """Check that no change of a rank's order from one epoch to the next occurs with another seed,
    from the same epoch or from another. Return the first violation, or None."""
    for rank in lists.asked_ranks:
        for (seed, i), (other, j) in equal_changes(lists, rank):
            epochs = lists.epochs
            ends = [
                [lists.title((rank, s, epochs[k])), lists.title((rank, s, epochs[k + 1]))]
                for s, k in ((seed, i), (other, j))
            ]
            what = "order({}) → order({}) == order({}) → order({})"
            return Violation(what.format(*ends[0], *ends[1]), True, False)
    return None


def ignores_seed_in_order(lists: SampleLists) -> bool:
    """Return whether on every rank the order changes in the same way with two seeds, from an epoch
    to the next one."""
    return all(
        any(i == j for (_, i), (_, j) in equal_changes(lists, rank)) for rank in lists.asked_ranks
    )


def adds_seed_and_epoch(lists: SampleLists) -> bool:
    """Return whether every rank's order, or list, in some epoch is that of another epoch with
    another seed."""
    return all(
        any(i != j for (_, i), (_, j) in equal_changes(lists, rank))
        or any(
            np.array_equal(lists.first[rank, s, e], lists.first[rank, t, f])
            for s, t in product(lists.seeds[:20], repeat=2)
            for e, f in product(lists.epochs[:4], repeat=2)
            if s < t and e != f
        )
        for rank in lists.asked_ranks
    )


def adds_rank_and_epoch(lists: SampleLists) -> bool:
    """Return whether, with one seed, some rank's order changes as another rank's does in another
    epoch."""
    for seed in lists.seeds[:2]:
        changes = [
            (rank, i, change)
            for rank in lists.asked_ranks
            for i, change in enumerate(order_changes(lists, rank, seed)[:4])
            if change is not None
        ]
        for (a, i, one), (b, j, other) in product(changes, repeat=2):
            if a < b and i != j and np.array_equal(one, other):
                return True
    return False


def check_epochs_of_seeds_differ(lists: SampleLists) -> Violation | None:
    """Check that no list of a rank occurs with another seed in another epoch. Return the first
    violation, or None."""
    asks = [(s, e) for s in lists.seeds for e in lists.epochs]
    for rank in lists.asked_ranks:
        for (s, e), (t, f) in product(asks, repeat=2):
            a, b = (rank, s, e), (rank, t, f)
            if s < t and e != f and np.array_equal(lists.first[a], lists.first[b]):
                return Violation(f"{lists.title(a)} == {lists.title(b)}", True, False)
    return None
