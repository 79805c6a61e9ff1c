"""Properties that lists of sample numbers must have, whatever draws made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations, product

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.chance import chi_square_most, even
from dualml.course.lab3.lists import Ask, Lists, Seen, alike, same

Property = Callable[[Lists], Seen | None]


def usable(lists: Lists) -> Seen | None:
    """Check that lists are one-dimensional and have integers from 0 to n − 1."""
    one = lists.title(next(iter(lists.first)))
    for kind, dims in zip(lists.kinds, lists.dims, strict=True):
        if dims != 1:
            return Seen(f"np.ndim({one})", dims, 1)
        if kind not in "iu":
            return Seen(f"{one}.dtype.kind", kind, "i")
    for ask, a in lists.first.items():
        if len(a) and not (a.min() >= 0 and a.max() < lists.n):
            low = a.min() < 0
            title = lists.title(ask)
            return Seen(f"min({title})" if low else f"max({title})",
                        int(a.min() if low else a.max()), 0 if low else lists.n - 1)  # fmt: skip
    return None


def even_sizes(lists: Lists) -> Seen | None:
    """Check that sizes differ by one at most and add up to n."""
    for seed, epoch in lists.times():
        sizes = [len(a) for a in lists.of_ranks(seed, epoch)]
        right = [len(a) for a in np.array_split(np.arange(lists.n), lists.ranks)]
        if sorted(sizes, reverse=True) != right:
            some = lists.title((0, seed, epoch)).replace("rank=0", "rank=r")
            return Seen(f"[len({some}) for r in range({lists.ranks})]", sizes, right)
    return None


def every_once(lists: Lists) -> Seen | None:
    """Check that every sample occurs once over all ranks."""
    for seed, epoch in lists.times():
        parts = lists.of_ranks(seed, epoch)
        whole = np.bincount(np.concatenate(parts), minlength=lists.n)
        if (whole != 1).any():
            sample = int(np.argmax(whole != 1))
            some = lists.title((0, seed, epoch)).replace("rank=0", "rank=r")
            where = f"sum(list({some}).count({sample}) for r in range({lists.ranks}))"
            return Seen(where, int(whole[sample]), 1)
    return None


def repeatable(lists: Lists) -> Seen | None:
    """Check that equal arguments give equal lists."""
    for ask, a in lists.first.items():
        if not np.array_equal(a, lists.again[ask]):
            title = lists.title(ask)
            return Seen(f"{title} == {title}", False, True)
    return None


def untouched(lists: Lists) -> Seen | None:
    """Check that NumPy's global generator is unchanged."""
    return Seen("np.random.get_state() == before", False, True) if lists.touched else None


def differ(lists: Lists, pairs: Iterable[tuple[Ask, Ask]]) -> Seen | None:
    """Check that no two of these lists are equal."""
    for a, b in pairs:
        if same(lists.first[a], lists.first[b]):
            return Seen(f"{lists.title(a)} == {lists.title(b)}", True, False)
    return None


def ranks_differ(lists: Lists) -> Seen | None:
    """Check that no rank has another one's list, in this epoch or in another."""
    for seed in lists.seeds:
        first = [(rank, seed, lists.epochs[0]) for rank in lists.own]
        every = [(rank, seed, epoch) for rank in lists.own for epoch in lists.epochs]
        others = [(a, b) for a, b in combinations(every, 2) if a[0] != b[0]]
        found = differ(lists, [*combinations(first, 2), *others])
        if found:
            return found
    return None


def epochs_differ(lists: Lists) -> Seen | None:
    """Check that a rank has another list in every epoch."""
    for rank, seed in product(lists.own, lists.seeds):
        every = [(rank, seed, epoch) for epoch in lists.epochs]
        found = differ(lists, combinations(every, 2))
        if found:
            return found
    return None


def unsorted(lists: Lists) -> Seen | None:
    """Check that no list is sorted."""
    for ask, a in lists.first.items():
        if len(a) and (np.diff(a) >= 0).all():
            return Seen(f"sorted({lists.title(ask)}) == list({lists.title(ask)})", True, False)
    return None


def kept(lists: Lists) -> Seen | None:
    """Check that a rank has the same samples in every epoch."""
    for rank, seed in product(lists.own, lists.seeds):
        for epoch in lists.epochs[1:]:
            a, b = (rank, seed, lists.epochs[0]), (rank, seed, epoch)
            if not alike(lists.first[a], lists.first[b]):
                return Seen(f"set({lists.title(a)}) == set({lists.title(b)})", False, True)
    return None


def seeds_differ(lists: Lists) -> Seen | None:
    """Check that different seeds give different lists."""
    rank, epoch = lists.own[0], lists.epochs[0]
    every = [(rank, seed, epoch) for seed in lists.seeds]
    return differ(lists, combinations(every, 2))


def seeds_deal_otherwise(lists: Lists) -> Seen | None:
    """Check that another seed gives a rank other samples, in whatever order."""
    rank, epoch = lists.own[0], lists.epochs[0]
    for one, other in combinations(lists.seeds[:20], 2):
        a, b = (rank, one, epoch), (rank, other, epoch)
        if alike(lists.first[a], lists.first[b]):
            return Seen(f"set({lists.title(a)}) == set({lists.title(b)})", True, False)
    return None


def repeated(lists: Lists) -> Seen | None:
    """Check that some list has a sample twice, since samples are drawn with replacement."""
    if any(len(np.unique(a)) < len(a) for a in lists.first.values()):
        return None
    one = lists.title(next(iter(lists.first)))
    return Seen(f"len({one}) - len(set({one})), {len(lists.first)} ×", 0, "> 0")


def uniform(lists: Lists) -> Seen | None:
    """Check that every rank draws each sample about equally often (χ², see `chance`)."""
    for rank in lists.own:
        drawn = np.concatenate([a for ask, a in lists.first.items() if ask[0] == rank])
        seen = unequal(np.bincount(drawn, minlength=lists.n), lists.n)
        if seen:
            return Seen(f"np.bincount(rank {rank}): χ²({lists.n - 1})", *seen)
    return None


def dealt_uniformly(lists: Lists) -> Seen | None:
    """Check that over many seeds rank 0 has every sample about equally often."""
    parts = list(lists.first.values())
    counts = np.bincount(np.concatenate(parts), minlength=lists.n)
    seen = unequal(counts, lists.n, len(parts[0]) / lists.n, len(parts))
    return Seen(f"np.bincount(rank 0): χ²({lists.n - 1})", *seen) if seen else None


def unequal(
    counts: Array, n: int, share: float | None = None, draws: int = 0
) -> tuple[float, str] | None:
    """Return χ² of these counts and its bound if the bound is exceeded; else None."""
    found, most = even(counts, share, draws), chi_square_most(n - 1)
    return (round(found, 1), f"< {most:.1f}") if found > most else None
