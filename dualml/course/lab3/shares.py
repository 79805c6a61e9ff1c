"""Parts with skewed labels that a student's code gave: what has to hold of them, and typical
mistakes as they are seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.chance import concentration, mean_most, share_variance
from dualml.course.lab3.lists import Seen

ALPHAS = (0.1, 1.0, 100.0)
#: Sizes of shares are whole numbers: so much may Σ p² be off by that.
ROUNDED = 0.01
#: So many samples of a label at the second of its ranks are enough to see an order.
FEW = 5
#: Of the tables of shares, how close two of them are that are the same but for whole numbers.
CLOSE = 0.06


@dataclass(frozen=True)
class Parts:
    """What came: for each (α, seed) the parts of the ranks; ``again``, likewise, a second time."""

    labels: Array
    ranks: int
    asks: Sequence[tuple[float, int]]
    first: Sequence[Sequence[Array]]
    again: Sequence[Sequence[Array]]
    kinds: Sequence[str]
    dims: Sequence[int]
    touched: bool

    def title(self, number: int) -> str:
        alpha, seed = self.asks[number]
        return f"label_skew(labels, {self.ranks}, {alpha:g}, {seed=})"

    @cached_property
    def held(self) -> Array:
        """(asks, labels, ranks): how many samples of a label are with which rank."""
        labels, of = np.unique(self.labels, return_inverse=True)
        counted = [[np.bincount(of[part], minlength=len(labels)) for part in parts]
                   for parts in self.first]  # fmt: skip
        held: Array = np.array(counted).transpose(0, 2, 1)
        return held

    @cached_property
    def shares(self) -> Array:
        """(asks, labels, ranks): p_y[r] of the labels that are dealt at all."""
        totals = self.held.sum(2, keepdims=True)
        dealt = (totals > 0).all((0, 2))
        shares: Array = self.held[:, dealt] / totals[:, dealt]
        return shares

    def of_alpha(self, alpha: float) -> Array:
        """Σ p² of every label and seed; 0 where nothing is dealt."""
        chosen = [a == alpha for a, _ in self.asks]
        squares: Array = (self.shares[chosen] ** 2).sum(-1)
        return squares if squares.size else np.zeros(1)


Holds = Callable[[Parts], Seen | None]


def usable(parts: Parts) -> Seen | None:
    """A list of as many arrays as there are ranks, of integers that are samples."""
    for number, found in enumerate(parts.first):
        if len(found) != parts.ranks:
            return Seen(f"len({parts.title(number)})", len(found), parts.ranks)
    for kind, dims in zip(parts.kinds, parts.dims, strict=True):
        if dims != 1 or kind not in "iu":
            what = f"{parts.title(0)}[r]"
            return (
                Seen(f"np.ndim({what})", dims, 1)
                if dims != 1
                else Seen(f"{what}.dtype.kind", kind, "i")
            )
    every = np.concatenate([part for found in parts.first for part in found])
    if len(every) and not 0 <= every.min() <= every.max() < len(parts.labels):
        return Seen("max(samples)", int(every.max()), len(parts.labels) - 1)
    return None


def every_once(parts: Parts) -> Seen | None:
    for number, found in enumerate(parts.first):
        counts = np.bincount(np.concatenate(found), minlength=len(parts.labels))
        if (counts != 1).any():
            sample = int(np.argmax(counts != 1))
            what = f"sum(list(part).count({sample}) for part in {parts.title(number)})"
            return Seen(what, int(counts[sample]), 1)
    return None


def repeatable(parts: Parts) -> Seen | None:
    for number, pair in enumerate(zip(parts.first, parts.again, strict=True)):
        if not all(map(np.array_equal, *pair)):
            return Seen(f"{parts.title(number)} == {parts.title(number)}", False, True)
    return None


def untouched(parts: Parts) -> Seen | None:
    return Seen("np.random.get_state() == before", False, True) if parts.touched else None


def seeds_differ(parts: Parts) -> Seen | None:
    """Another seed, other shares."""
    if seed_ignored(parts):
        return Seen(f"{parts.title(0)} == {parts.title(1)}", True, False)
    return None


def mixed(parts: Parts) -> Seen | None:
    """The samples of a label are not handed out in their order: where it is shared, its samples
    change from rank to rank more often than they must. Of a label that two ranks have `FEW` or more
    of, that is so by chance but once in thousands of times; here, in all of them."""
    seen: tuple[int, int] | None = None
    for found, held in zip(parts.first, parts.held, strict=True):
        holder = np.full(len(parts.labels), -1)
        for rank, part in enumerate(found):
            holder[part] = rank
        for label, own in zip(np.unique(parts.labels), held, strict=True):
            ranks = holder[parts.labels == label]
            if np.sort(own)[-2] >= FEW and (ranks >= 0).all():
                least = int((own > 0).sum()) - 1
                if int((np.diff(ranks) != 0).sum()) > least:
                    return None
                seen = seen or (int(label), least)
    if seen is None:
        return None
    what = f"sum(np.diff(rank_of[labels == {seen[0]}]) != 0), {parts.title(0)}"
    return Seen(what, seen[1], f"> {seen[1]}")


def drawn_for_each_label(parts: Parts) -> Seen | None:
    """Two labels do not have the same shares."""
    if same_shares(parts):
        return Seen(f"{parts.title(0)}: p_0 == p_1", True, False)
    return None


def concentrated(parts: Parts) -> Seen | None:
    """The mean of Σ p² and of p, over labels and seeds, is that of Dir(α, …, α)."""
    if not parts.shares.size:
        return Seen(f"sum(map(len, {parts.title(0)}))", 0, len(parts.labels))
    for alpha in ALPHAS:
        squares, (mean, variance) = parts.of_alpha(alpha), concentration(alpha, parts.ranks)
        most = mean_most(variance, squares.size) + ROUNDED
        if abs(squares.mean() - mean) > most:
            return Seen(f"mean(Σ_r p_r²), α = {alpha:g}", round(float(squares.mean()), 3),
                        f"{mean:.3f} ± {most:.3f}")  # fmt: skip
        shares = parts.shares[[a == alpha for a, _ in parts.asks]]
        most = mean_most(share_variance(alpha, parts.ranks), squares.size) + ROUNDED
        for rank, share in enumerate(shares.mean((0, 1))):
            if abs(share - 1 / parts.ranks) > most:
                return Seen(f"mean(p_{rank}), α = {alpha:g}", round(float(share), 3),
                            f"{1 / parts.ranks:.3f} ± {most:.3f}")  # fmt: skip
    return None


# --- typical mistakes -----------------------------------------------------------------------------


def like(parts: Parts, alpha_of: Callable[[float], float], most: float = 0.05) -> bool:
    """Whether Σ p² is about that of another α."""
    return all(
        abs(float(parts.of_alpha(alpha).mean()) - concentration(alpha_of(alpha), parts.ranks)[0])
        < most
        for alpha in ALPHAS
    )


def counts(parts: Parts) -> list[int]:
    """How many samples were dealt in all, each time."""
    return [sum(map(len, found)) for found in parts.first]


def a_label_missing(parts: Parts) -> bool:
    """Whole labels are with nobody."""
    return bool((parts.held.sum(2) == 0).any())


def same_shares(parts: Parts) -> bool:
    """All labels have the same shares, but for whole numbers."""
    several = parts.shares.shape[1] > 1
    return several and bool((np.ptp(parts.shares, axis=1) < CLOSE).all()) and not evenly(parts)


def evenly(parts: Parts) -> bool:
    return max(means(parts)) < 1 / parts.ranks + 0.02


def seed_ignored(parts: Parts) -> bool:
    alike = [s for s, (a, _) in zip(parts.first, parts.asks, strict=True) if a == ALPHAS[1]]
    return all(all(map(np.array_equal, map(np.sort, alike[0]), map(np.sort, s))) for s in alike[1:])


def means(parts: Parts) -> list[float]:
    return [float(parts.of_alpha(alpha).mean()) for alpha in ALPHAS]


DETECTORS: dict[str, Callable[[Parts], bool]] = {
    "draw_not_repeatable": lambda parts: repeatable(parts) is not None,
    "draw_global": lambda parts: parts.touched,
    "draw_seed_ignored": seed_ignored,
    "skew_label_numbers": a_label_missing,
    "skew_twice": lambda parts: max(counts(parts)) > len(parts.labels),
    "skew_lost": lambda parts: min(counts(parts)) < len(parts.labels),
    "skew_in_order": lambda parts: mixed(parts) is not None,
    "skew_same_shares": same_shares,
    "skew_label_whole": lambda parts: min(means(parts)) > 0.999,
    "skew_even": evenly,
    "skew_alpha_ignored": lambda parts: np.ptp(means(parts)) < 0.05,
    "skew_alpha_inverted": lambda parts: like(parts, lambda alpha: 1 / alpha),
    "skew_alpha_divided": lambda parts: like(parts, lambda alpha: alpha / parts.ranks),
}
