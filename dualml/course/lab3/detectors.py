"""Detectors of typical mistakes in lists of sample numbers: whether a mistake would make lists like
these."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import Ask, SampleLists, has_same_samples, is_same_list
from dualml.course.lab3.properties import check_repeatable

Detector = Callable[[SampleLists], bool]
#: (rank, seed, epoch) → whether its list is wanted.
AskFilter = Callable[[Ask], bool]
#: Fraction of the mean count below which a sample at the end of the range is drawn too rarely, and
#: above which all others have to be.
RARE, USUAL = 0.7, 0.75


def has_non_integers(lists: SampleLists) -> bool:
    """Return whether a list has another dtype than integers."""
    return any(kind not in "iu" for kind in lists.kinds)


def starts_at_one(lists: SampleLists) -> bool:
    """Return whether the samples seem to go from 1 to n: the largest is n and none is 0."""
    every = np.concatenate(list(lists.first.values()))
    return len(every) > 0 and int(every.max()) == lists.n and int(every.min()) > 0


def is_unrepeatable(lists: SampleLists) -> bool:
    """Return whether equal arguments give different lists; for samplers, whether a new sampler
    gives another list in the first epoch."""
    if lists.fresh:
        return any(
            not np.array_equal(a, lists.fresh[ask])
            for ask, a in lists.first.items()
            if ask[2] == lists.epochs[0]
        )
    return check_repeatable(lists) is not None


def rank_sizes(lists: SampleLists) -> list[int]:
    """Return the length of each rank's list if the lengths are the same with every seed and in
    every epoch; else an empty list."""
    every = {tuple(len(a) for a in lists.rank_lists(*time)) for time in lists.seed_epoch_pairs()}
    return list(every.pop()) if len(every) == 1 else []


def is_replicated(lists: SampleLists) -> bool:
    """Return whether there are several ranks, and each always has n samples."""
    return lists.ranks > 1 and set(rank_sizes(lists)) == {lists.n}


def rounds_sizes_up(lists: SampleLists) -> bool:
    """Return whether all ranks but the last ones have ⌈n/ranks⌉ samples and these what is left,
    less than ⌊n/ranks⌋."""
    size = -(-lists.n // lists.ranks)
    parts = [max(min(size, lists.n - rank * size), 0) for rank in range(lists.ranks)]
    return rank_sizes(lists) == parts and max(parts) - min(parts) > 1


def misses_borders(lists: SampleLists) -> bool:
    """Return whether the sizes of the ranks' lists are always the same and within 2 of n/ranks, but
    do not add up to n."""
    sizes = rank_sizes(lists)
    near = all(abs(size - lists.n / lists.ranks) <= 2 for size in sizes)
    return near and len(sizes) == lists.ranks and sum(sizes) != lists.n


def drops_remainder(lists: SampleLists) -> bool:
    """Return whether every rank has ⌊n/ranks⌋ samples although there is a remainder."""
    return set(rank_sizes(lists)) == {lists.n // lists.ranks} and lists.n % lists.ranks > 0


def pads_remainder(lists: SampleLists) -> bool:
    """Return whether every rank has ⌈n/ranks⌉ samples although there is a remainder, so that some
    are repeated."""
    return set(rank_sizes(lists)) == {-(-lists.n // lists.ranks)} and lists.n % lists.ranks > 0


def piles_remainder(lists: SampleLists) -> bool:
    """Return whether one rank has the whole remainder, of two or more samples, and all others have
    ⌊n/ranks⌋ samples."""
    found = sorted(rank_sizes(lists))
    most = lists.n // lists.ranks
    extra = lists.n % lists.ranks
    return extra > 1 and found == [most] * (lists.ranks - 1) + [most + extra]


def ignores_rank(lists: SampleLists) -> bool:
    """Return whether all ranks have the same samples in any order, apart from one more on some."""
    return lists.ranks > 1 and all(
        abs(len(a) - len(b)) < 2 and (is_subset(a, b) or is_subset(b, a))
        for time in lists.seed_epoch_pairs()
        for a, b in combinations(lists.rank_lists(*time), 2)
    )


def is_subset(a: Array, b: Array) -> bool:
    """Return whether all elements of one list are in the other."""
    return bool(np.isin(a, b).all())


def ignores_epoch(lists: SampleLists) -> bool:
    """Return whether every rank has the same list in all epochs, of which the first four are
    compared."""
    return len(lists.epochs) > 1 and all(
        np.array_equal(a, b)
        for rank, seed in product(lists.asked_ranks, lists.seeds)
        for a, b in combinations(lists.epoch_lists(rank, seed)[:4], 2)
    )


def reorders_draws(lists: SampleLists) -> bool:
    """Return whether every rank has the same samples in all epochs, of which the first four are
    compared, each equally often, in another order."""
    return (
        not ignores_epoch(lists)
        and len(lists.epochs) > 1
        and all(
            has_same_samples(a, b)
            for rank, seed in product(lists.asked_ranks, lists.seeds)
            for a, b in combinations(lists.epoch_lists(rank, seed)[:4], 2)
        )
    )


def repeats_some_epoch(lists: SampleLists) -> bool:
    """Return whether every rank has the same list in two epochs of the first four, not in all."""
    return not ignores_epoch(lists) and all(
        any(np.array_equal(a, b) for a, b in combinations(lists.epoch_lists(rank, seed)[:4], 2))
        for rank, seed in product(lists.asked_ranks, lists.seeds)
    )


def ignores_seed(lists: SampleLists) -> bool:
    """Return whether all seeds (at most 20 are compared) give a rank the same samples, in any
    order."""
    return len(lists.seeds) > 1 and all(
        has_same_samples(lists.first[rank, lists.seeds[0], epoch], lists.first[rank, seed, epoch])
        for rank, seed, epoch in product(lists.asked_ranks, lists.seeds[1:20], lists.epochs)
    )


def adds_seeds(lists: SampleLists) -> bool:
    """Return whether a rank has in one epoch the list of another rank in another epoch, of the
    first four."""
    return any(
        is_same_list(lists.first[a, seed, e], lists.first[b, seed, f])
        for seed in lists.seeds
        for a, b in combinations(lists.asked_ranks, 2)
        for e, f in product(lists.epochs[:4], repeat=2)
        if e != f
    )


def has_duplicates(lists: SampleLists) -> bool:
    """Return whether some list has a sample twice."""
    return any(len(np.unique(a)) < len(a) for a in lists.first.values())


def has_no_duplicates(lists: SampleLists) -> bool:
    """Return whether no list has a sample twice."""
    return not has_duplicates(lists)


def ranks_overlap(lists: SampleLists) -> bool:
    """Return whether no list has a sample twice, but two ranks share one."""
    return not has_duplicates(lists) and any(
        len(np.intersect1d(a, b)) > 0
        for time in lists.seed_epoch_pairs()
        for a, b in combinations(lists.rank_lists(*time), 2)
    )


def draws_from_own_part(lists: SampleLists) -> bool:
    """Return whether, of several ranks, the numbers of different samples that they have in all
    epochs add up to n at most (mean over the seeds), so that no two ranks share one."""
    seen = [
        np.unique(np.concatenate(lists.epoch_lists(rank, seed)))
        for seed in lists.seeds
        for rank in lists.asked_ranks
    ]
    return lists.ranks > 1 and sum(map(len, seen)) <= lists.n * len(lists.seeds)


def misses_ends(lists: SampleLists) -> bool:
    """Return whether at most two samples never occur, among them the first or the last one."""
    seen = np.unique(np.concatenate(list(lists.first.values())))
    return 0 < lists.n - len(seen) <= 2 and not {0, lists.n - 1} <= set(seen.tolist())


def draws_ends_rarely(lists: SampleLists) -> bool:
    """Return whether the first or the last sample is drawn less often than all others, as by
    rounding to the nearest integer."""
    counts = np.bincount(np.concatenate(list(lists.first.values())), minlength=lists.n)
    mean = counts[1:-1].mean()
    return bool(counts[[0, -1]].min() < RARE * mean and counts[1:-1].min() > USUAL * mean)


def repartitions_each_epoch(lists: SampleLists) -> bool:
    """Return whether a rank has other samples, not only another order, in one of the first four
    epochs."""
    return any(
        not has_same_samples(*pair)
        for rank, seed in product(lists.asked_ranks, lists.seeds)
        for pair in combinations(lists.epoch_lists(rank, seed)[:4], 2)
    )


def is_sorted(lists: SampleLists) -> bool:
    """Return whether all lists are sorted."""
    return all((np.diff(a) >= 0).all() for a in lists.first.values())


def is_strided(lists: SampleLists) -> bool:
    """Return whether rank r has the samples r, r + ranks, r + 2 ranks, … of n, in any order."""
    return all(
        np.array_equal(np.sort(a), np.arange(rank, lists.n, lists.ranks))
        for (rank, _, _), a in lists.first.items()
    )


def is_contiguous(lists: SampleLists) -> bool:
    """Return whether every rank has consecutive samples, in any order."""
    return all((np.diff(np.sort(a)) == 1).all() for a in lists.first.values())
