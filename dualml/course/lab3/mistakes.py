"""Detectors of typical mistakes in lists of sample numbers, to find out why a property is
violated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import SampleLists, has_same_samples, is_same_list
from dualml.course.lab3.properties import check_repeatable

Detector = Callable[[SampleLists], bool]


def has_non_integers(lists: SampleLists) -> bool:
    """Return whether a list has another dtype than integers."""
    return any(kind not in "iu" for kind in lists.kinds)


def starts_at_one(lists: SampleLists) -> bool:
    """Return whether the samples seem to go from 1 to n: the largest is n and none is 0."""
    every = np.concatenate(list(lists.first.values()))
    return len(every) > 0 and int(every.max()) == lists.n and int(every.min()) > 0


def is_unrepeatable(lists: SampleLists) -> bool:
    """Return whether equal arguments give different lists; for samplers, whether another one
    differs already in the first epoch."""
    if lists.fresh:
        return any(
            not np.array_equal(a, lists.fresh[ask])
            for ask, a in lists.first.items()
            if ask[2] == lists.epochs[0]
        )
    return check_repeatable(lists) is not None


def second_pass_is_empty(lists: SampleLists) -> bool:
    """Return whether some second loop over a sampler is empty although the first is not."""
    return any(len(a) > 0 and not len(lists.again[ask]) for ask, a in lists.first.items())


def rank_sizes(lists: SampleLists) -> list[int]:
    """Return the list sizes of the ranks if they are always the same; else an empty list."""
    every = {tuple(len(a) for a in lists.rank_lists(*time)) for time in lists.seed_epoch_pairs()}
    return list(every.pop()) if len(every) == 1 else []


def is_replicated(lists: SampleLists) -> bool:
    """Return whether each of several ranks always has as many samples as there are."""
    return lists.ranks > 1 and set(rank_sizes(lists)) == {lists.n}


def drops_remainder(lists: SampleLists) -> bool:
    """Return whether every rank has ⌊n/ranks⌋ samples although there is a remainder."""
    return set(rank_sizes(lists)) == {lists.n // lists.ranks} and lists.n % lists.ranks > 0


def pads_remainder(lists: SampleLists) -> bool:
    """Return whether every rank has ⌈n/ranks⌉ samples although there is a remainder, so that some
    are repeated."""
    return set(rank_sizes(lists)) == {-(-lists.n // lists.ranks)} and lists.n % lists.ranks > 0


def piles_remainder(lists: SampleLists) -> bool:
    """Return whether the ranks' sizes add up to n but differ by more than one, as with the whole
    remainder on one rank."""
    found = rank_sizes(lists)
    return sum(found) == lists.n and max(found) - min(found) > 1


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


def second_pass_differs(lists: SampleLists) -> bool:
    """Return whether a second loop over a sampler gives something else, and none is empty after one
    that was not."""
    return not second_pass_is_empty(lists) and check_repeatable(lists) is not None


def has_wrong_length(lists: SampleLists) -> bool:
    """Return whether ``len`` of some sampler is not the number of its samples."""
    return any(len(a) != lists.lengths[ask] for ask, a in lists.first.items())


def find_mistake(flags: Sequence[str], lists: SampleLists) -> tuple[str, ...]:
    """Return the first of the mistakes ``flags`` that is detected, in a tuple; an empty tuple if
    none is."""
    return next(((name,) for name in flags if DETECTORS[name](lists)), ())


DETECTORS: dict[str, Detector] = {
    "draw_no_integers": has_non_integers,
    "draw_from_one": starts_at_one,
    "draw_not_repeatable": is_unrepeatable,
    "draw_global": lambda lists: lists.touched,
    "draw_rank_ignored": ignores_rank,
    "draw_epoch_ignored": ignores_epoch,
    "draw_seed_ignored": ignores_seed,
    "draw_seeds_added": adds_seeds,
    "draw_never_twice": has_no_duplicates,
    "draw_own_part": draws_from_own_part,
    "draw_ends_missing": misses_ends,
    "deal_whole": is_replicated,
    "deal_dropped": drops_remainder,
    "deal_padded": pads_remainder,
    "deal_uneven": piles_remainder,
    "deal_overlap": ranks_overlap,
    "deal_replaced": has_duplicates,
    "deal_each_epoch": repartitions_each_epoch,
    "deal_order_fixed": ignores_epoch,
    "deal_sorted": is_sorted,
    "deal_strided": is_strided,
    "deal_blocks": is_contiguous,
    "sampler_exhausted": second_pass_is_empty,
    "sampler_goes_on": second_pass_differs,
    "sampler_length": has_wrong_length,
    "sampler_epoch_ignored": ignores_epoch,
    "sampler_kind_ignored": has_no_duplicates,
}
