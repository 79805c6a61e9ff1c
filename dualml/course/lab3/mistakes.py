"""Detectors of typical mistakes in lists of sample numbers, to find out why a property is
violated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import Lists, alike, same
from dualml.course.lab3.properties import repeatable

Detector = Callable[[Lists], bool]


def no_integers(lists: Lists) -> bool:
    """Return whether a list has another dtype than integers."""
    return any(kind not in "iu" for kind in lists.kinds)


def from_one(lists: Lists) -> bool:
    """Return whether the samples go from 1 to n."""
    every = np.concatenate(list(lists.first.values()))
    return len(every) > 0 and int(every.max()) == lists.n and int(every.min()) > 0


def not_repeatable(lists: Lists) -> bool:
    """Return whether equal arguments give different lists; for samplers, whether another one
    differs already in the first epoch."""
    if lists.fresh:
        return any(not np.array_equal(a, lists.fresh[ask])
                   for ask, a in lists.first.items() if ask[2] == lists.epochs[0])  # fmt: skip
    return repeatable(lists) is not None


def exhausted(lists: Lists) -> bool:
    """Return whether the second loop over a sampler is empty."""
    return any(len(a) > 0 and not len(lists.again[ask]) for ask, a in lists.first.items())


def sizes(lists: Lists) -> list[int]:
    """Return the list sizes of the ranks if they are always the same; else an empty list."""
    every = {tuple(len(a) for a in lists.of_ranks(*time)) for time in lists.times()}
    return list(every.pop()) if len(every) == 1 else []


def whole(lists: Lists) -> bool:
    """Return whether every rank has as many samples as there are."""
    return lists.ranks > 1 and set(sizes(lists)) == {lists.n}


def dropped(lists: Lists) -> bool:
    """Return whether the remainder of n/ranks is missing."""
    return set(sizes(lists)) == {lists.n // lists.ranks} and lists.n % lists.ranks > 0


def padded(lists: Lists) -> bool:
    """Return whether samples are repeated to make all sizes equal."""
    return set(sizes(lists)) == {-(-lists.n // lists.ranks)} and lists.n % lists.ranks > 0


def uneven(lists: Lists) -> bool:
    """Return whether nothing is lost, but the whole remainder is on one rank."""
    found = sizes(lists)
    return sum(found) == lists.n and max(found) - min(found) > 1


def rank_ignored(lists: Lists) -> bool:
    """Return whether all ranks have the same samples in any order, apart from one more on some."""
    return lists.ranks > 1 and all(
        abs(len(a) - len(b)) < 2 and (within(a, b) or within(b, a))
        for time in lists.times()
        for a, b in combinations(lists.of_ranks(*time), 2)
    )


def within(a: Array, b: Array) -> bool:
    """Return whether all elements of one list are in the other."""
    return bool(np.isin(a, b).all())


def epoch_ignored(lists: Lists) -> bool:
    """Return whether all epochs are equal."""
    return len(lists.epochs) > 1 and all(
        np.array_equal(a, b)
        for rank, seed in product(lists.own, lists.seeds)
        for a, b in combinations(lists.of_epochs(rank, seed)[:4], 2)
    )


def seed_ignored(lists: Lists) -> bool:
    """Return whether all seeds give a rank the same samples."""
    return len(lists.seeds) > 1 and all(
        alike(lists.first[rank, lists.seeds[0], epoch], lists.first[rank, seed, epoch])
        for rank, seed, epoch in product(lists.own, lists.seeds[1:20], lists.epochs)
    )


def seeds_added(lists: Lists) -> bool:
    """Return whether a rank has in one epoch the list of another rank in another epoch."""
    return any(
        same(lists.first[a, seed, e], lists.first[b, seed, f])
        for seed in lists.seeds
        for a, b in combinations(lists.own, 2)
        for e, f in product(lists.epochs[:4], repeat=2)
        if e != f
    )


def replaced(lists: Lists) -> bool:
    """Return whether a list has a sample twice."""
    return any(len(np.unique(a)) < len(a) for a in lists.first.values())


def never_twice(lists: Lists) -> bool:
    """Return whether no list has a sample twice."""
    return not replaced(lists)


def overlap(lists: Lists) -> bool:
    """Return whether no list has a sample twice, but two ranks share one."""
    return not replaced(lists) and any(
        len(np.intersect1d(a, b)) > 0
        for time in lists.times()
        for a, b in combinations(lists.of_ranks(*time), 2)
    )


def own_part(lists: Lists) -> bool:
    """Return whether in many epochs no two ranks ever have the same sample."""
    seen = [np.unique(np.concatenate(lists.of_epochs(rank, seed)))
            for seed in lists.seeds for rank in lists.own]  # fmt: skip
    return lists.ranks > 1 and sum(map(len, seen)) <= lists.n * len(lists.seeds)


def ends_missing(lists: Lists) -> bool:
    """Return whether the first or the last sample never occurs."""
    seen = np.unique(np.concatenate(list(lists.first.values())))
    return 0 < lists.n - len(seen) <= 2 and not {0, lists.n - 1} <= set(seen.tolist())


def redealt(lists: Lists) -> bool:
    """Return whether a rank has other samples in another epoch."""
    return any(
        not alike(*pair)
        for rank, seed in product(lists.own, lists.seeds)
        for pair in combinations(lists.of_epochs(rank, seed)[:4], 2)
    )


def rising(lists: Lists) -> bool:
    """Return whether all lists are sorted."""
    return all((np.diff(a) >= 0).all() for a in lists.first.values())


def strided(lists: Lists) -> bool:
    """Return whether rank r has r, r + ranks, r + 2 ranks, …"""
    return all(
        np.array_equal(np.sort(a), np.arange(rank, lists.n, lists.ranks))
        for (rank, _, _), a in lists.first.items()
    )


def blocks(lists: Lists) -> bool:
    """Return whether every rank has consecutive samples."""
    return all((np.diff(np.sort(a)) == 1).all() for a in lists.first.values())


def goes_on(lists: Lists) -> bool:
    """Return whether the second loop over a sampler gives something else."""
    return not exhausted(lists) and repeatable(lists) is not None


def wrong_length(lists: Lists) -> bool:
    """Return whether ``len`` is not the number of samples."""
    return any(len(a) != lists.lengths[ask] for ask, a in lists.first.items())


def first_found(flags: Sequence[str], lists: Lists) -> tuple[str, ...]:
    """Return the first of these mistakes that is detected, or nothing."""
    return next(((name,) for name in flags if DETECTORS[name](lists)), ())


DETECTORS: dict[str, Detector] = {
    "draw_no_integers": no_integers,
    "draw_from_one": from_one,
    "draw_not_repeatable": not_repeatable,
    "draw_global": lambda lists: lists.touched,
    "draw_rank_ignored": rank_ignored,
    "draw_epoch_ignored": epoch_ignored,
    "draw_seed_ignored": seed_ignored,
    "draw_seeds_added": seeds_added,
    "draw_never_twice": never_twice,
    "draw_own_part": own_part,
    "draw_ends_missing": ends_missing,
    "deal_whole": whole,
    "deal_dropped": dropped,
    "deal_padded": padded,
    "deal_uneven": uneven,
    "deal_overlap": overlap,
    "deal_replaced": replaced,
    "deal_each_epoch": redealt,
    "deal_order_fixed": epoch_ignored,
    "deal_sorted": rising,
    "deal_strided": strided,
    "deal_blocks": blocks,
    "sampler_exhausted": exhausted,
    "sampler_goes_on": goes_on,
    "sampler_length": wrong_length,
    "sampler_epoch_ignored": epoch_ignored,
    "sampler_kind_ignored": never_twice,
}
