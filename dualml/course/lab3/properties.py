"""Properties that lists of sample numbers must have, whatever draws made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.chance import chi_square, chi_square_bound
from dualml.course.lab3.lists import Ask, SampleLists, Violation, has_same_samples, is_same_list

Property = Callable[[SampleLists], Violation | None]


def check_indices(lists: SampleLists) -> Violation | None:
    """Check that lists are one-dimensional and have integers from 0 to n − 1. Return the first
    violation, or None."""
    one = lists.title(next(iter(lists.first)))
    for kind, dims in zip(lists.kinds, lists.dims, strict=True):
        if dims != 1:
            return Violation(f"np.ndim({one})", dims, 1)
        if kind not in "iu":
            return Violation(f"{one}.dtype.kind", kind, "i")
    for ask, a in lists.first.items():
        if len(a) and not (a.min() >= 0 and a.max() < lists.n):
            low = a.min() < 0
            title = lists.title(ask)
            return Violation(
                f"min({title})" if low else f"max({title})",
                int(a.min() if low else a.max()),
                0 if low else lists.n - 1,
            )
    return None


def check_sizes(lists: SampleLists) -> Violation | None:
    """Check that the sizes of the ranks' lists, in any order, differ by one at most and add up to
    n. Return the first violation, or None."""
    for seed, epoch in lists.seed_epoch_pairs():
        sizes = [len(a) for a in lists.rank_lists(seed, epoch)]
        right = [len(a) for a in np.array_split(np.arange(lists.n), lists.ranks)]
        if sorted(sizes, reverse=True) != right:
            some = lists.title((0, seed, epoch)).replace("rank=0", "rank=r")
            return Violation(f"[len({some}) for r in range({lists.ranks})]", sizes, right)
    return None


def check_coverage(lists: SampleLists) -> Violation | None:
    """Check that every sample occurs once over all ranks. Return the first violation, or None."""
    for seed, epoch in lists.seed_epoch_pairs():
        parts = lists.rank_lists(seed, epoch)
        whole = np.bincount(np.concatenate(parts), minlength=lists.n)
        if (whole != 1).any():
            sample = int(np.argmax(whole != 1))
            some = lists.title((0, seed, epoch)).replace("rank=0", "rank=r")
            where = f"sum(list({some}).count({sample}) for r in range({lists.ranks}))"
            return Violation(where, int(whole[sample]), 1)
    return None


def check_repeatable(lists: SampleLists) -> Violation | None:
    """Check that equal arguments give equal lists. Return the first violation, or None."""
    for ask, a in lists.first.items():
        if not np.array_equal(a, lists.again[ask]):
            title = lists.title(ask)
            return Violation(f"{title} == {title}", False, True)
    return None


def check_global_rng(lists: SampleLists) -> Violation | None:
    """Check that no global random generator was changed. Return the violation, or None."""
    return Violation("np.random.get_state() == before", False, True) if lists.touched else None


def check_different(lists: SampleLists, pairs: Iterable[tuple[Ask, Ask]]) -> Violation | None:
    """Check that of each pair of calls the lists differ: neither is the beginning of the other with
    at most one sample less. Return the first violation, or None."""
    for a, b in pairs:
        if is_same_list(lists.first[a], lists.first[b]):
            return Violation(f"{lists.title(a)} == {lists.title(b)}", True, False)
    return None


def check_ranks_differ(lists: SampleLists) -> Violation | None:
    """Check that no rank has another one's list, in this epoch or in another. Return the first
    violation, or None."""
    for seed in lists.seeds:
        first = [(rank, seed, lists.epochs[0]) for rank in lists.asked_ranks]
        every = [(rank, seed, epoch) for rank in lists.asked_ranks for epoch in lists.epochs]
        others = [(a, b) for a, b in combinations(every, 2) if a[0] != b[0]]
        found = check_different(lists, [*combinations(first, 2), *others])
        if found:
            return found
    return None


def check_epochs_differ(lists: SampleLists) -> Violation | None:
    """Check that a rank has another list in every epoch. Return the first violation, or None."""
    for rank, seed in product(lists.asked_ranks, lists.seeds):
        every = [(rank, seed, epoch) for epoch in lists.epochs]
        found = check_different(lists, combinations(every, 2))
        if found:
            return found
    return None


def check_unsorted(lists: SampleLists) -> Violation | None:
    """Check that no list is sorted. Return the first violation, or None."""
    for ask, a in lists.first.items():
        if len(a) and (np.diff(a) >= 0).all():
            return Violation(f"sorted({lists.title(ask)}) == list({lists.title(ask)})", True, False)
    return None


def check_same_samples(lists: SampleLists) -> Violation | None:
    """Check that a rank has the same samples in every epoch. Return the first violation, or
    None."""
    for rank, seed in product(lists.asked_ranks, lists.seeds):
        for epoch in lists.epochs[1:]:
            a, b = (rank, seed, lists.epochs[0]), (rank, seed, epoch)
            if not has_same_samples(lists.first[a], lists.first[b]):
                return Violation(f"set({lists.title(a)}) == set({lists.title(b)})", False, True)
    return None


def check_seeds_differ(lists: SampleLists) -> Violation | None:
    """Check that any two seeds give a rank different lists in the first epoch. Return the first
    violation, or None."""
    for rank in lists.asked_ranks:
        every = [(rank, seed, lists.epochs[0]) for seed in lists.seeds]
        found = check_different(lists, combinations(every, 2))
        if found:
            return found
    return None


def check_seeds_repartition(lists: SampleLists) -> Violation | None:
    """Check that any two of the first 20 seeds give a rank other samples, not only another order,
    in the first epoch. Return the first violation, or None."""
    epoch = lists.epochs[0]
    for rank, (one, other) in product(lists.asked_ranks, combinations(lists.seeds[:20], 2)):
        a, b = (rank, one, epoch), (rank, other, epoch)
        if has_same_samples(lists.first[a], lists.first[b]):
            return Violation(f"set({lists.title(a)}) == set({lists.title(b)})", True, False)
    return None


def check_replacement(lists: SampleLists) -> Violation | None:
    """Check that each rank has a sample twice in some list, since samples are drawn with
    replacement. Return the first violation, or None."""
    for rank in lists.asked_ranks:
        drawn = {ask: a for ask, a in lists.first.items() if ask[0] == rank}
        if not any(len(np.unique(a)) < len(a) for a in drawn.values()):
            one = lists.title(next(iter(drawn)))
            return Violation(f"len({one}) - len(set({one})), {len(drawn)} ×", 0, "> 0")
    return None


def check_every_sample_drawn(lists: SampleLists) -> Violation | None:
    """Check that every sample is drawn by some rank, in many epochs. Return the first violation, or
    None."""
    counts = np.bincount(np.concatenate(list(lists.first.values())), minlength=lists.n)
    if counts.all():
        return None
    sample = int(np.argmin(counts))
    some = lists.title(next(iter(lists.first)))
    return Violation(f"list({some}).count({sample}), {len(lists.first)} ×", 0, "> 0")


def check_uniform(lists: SampleLists) -> Violation | None:
    """Check that every rank, and all ranks together, draw each sample about equally often (χ², see
    `chance`). Return the first violation, or None."""
    whole = np.bincount(np.concatenate(list(lists.first.values())), minlength=lists.n)
    if seen := excess_chi_square(whole, lists.n):
        return Violation(f"np.bincount(all ranks): χ²({lists.n - 1})", *seen)
    for rank in lists.asked_ranks:
        drawn = np.concatenate([a for ask, a in lists.first.items() if ask[0] == rank])
        seen = excess_chi_square(np.bincount(drawn, minlength=lists.n), lists.n)
        if seen:
            return Violation(f"np.bincount(rank {rank}): χ²({lists.n - 1})", *seen)
    return None


def check_uniform_partition(lists: SampleLists) -> Violation | None:
    """Check that over many seeds rank 0 has every sample about equally often. Return the first
    violation, or None."""
    parts = list(lists.first.values())
    counts = np.bincount(np.concatenate(parts), minlength=lists.n)
    seen = excess_chi_square(counts, lists.n, len(parts[0]) / lists.n, len(parts))
    return Violation(f"np.bincount(rank 0): χ²({lists.n - 1})", *seen) if seen else None


def excess_chi_square(
    counts: Array, n: int, share: float | None = None, draws: int = 0
) -> tuple[float, str] | None:
    """Return χ² of these counts, rounded, and its bound as text if the bound is exceeded; else
    None."""
    found, most = chi_square(counts, share, draws), chi_square_bound(n - 1)
    return (round(found, 1), f"< {most:.1f}") if found > most else None
