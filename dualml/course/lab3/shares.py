"""Parts with skewed labels that a student's code returned: properties, and detectors of typical
mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.chance import concentration, mean_most, share_variance
from dualml.course.lab3.lists import Seen

ALPHAS = (0.1, 1.0, 100.0)
#: Error of Σ p² that may come from rounding shares to integers.
ROUNDED = 0.01
#: Minimum number of a label's samples on its second rank to recognise an order.
FEW = 5
#: Distance below which two tables of shares count as equal, apart from rounding to integers.
CLOSE = 0.06


@dataclass(frozen=True)
class Parts:
    """Parts of all ranks for each (α, seed), of the first and of the second call (``again``)."""

    labels: Array
    ranks: int
    asks: Sequence[tuple[float, int]]
    first: Sequence[Sequence[Array]]
    again: Sequence[Sequence[Array]]
    kinds: Sequence[str]
    dims: Sequence[int]
    touched: bool

    def title(self, number: int) -> str:
        """Return a call as the student would write it."""
        alpha, seed = self.asks[number]
        return f"label_skew(labels, {self.ranks}, {alpha:g}, {seed=})"

    @cached_property
    def held(self) -> Array:
        """Number of samples of each label on each rank, shape (asks, labels, ranks)."""
        labels, of = np.unique(self.labels, return_inverse=True)
        counted = [[np.bincount(of[part], minlength=len(labels)) for part in parts]
                   for parts in self.first]  # fmt: skip
        held: Array = np.array(counted).transpose(0, 2, 1)
        return held

    @cached_property
    def shares(self) -> Array:
        """Share p_y[r] of each label that is assigned at all, shape (asks, labels, ranks)."""
        totals = self.held.sum(2, keepdims=True)
        dealt = (totals > 0).all((0, 2))
        shares: Array = self.held[:, dealt] / totals[:, dealt]
        return shares

    def of_alpha(self, alpha: float) -> Array:
        """Return Σ p² of every label and seed for one α; 0 if nothing is assigned."""
        chosen = [a == alpha for a, _ in self.asks]
        squares: Array = (self.shares[chosen] ** 2).sum(-1)
        return squares if squares.size else np.zeros(1)


Holds = Callable[[Parts], Seen | None]


def usable(parts: Parts) -> Seen | None:
    """Check that a result has one list of valid sample numbers per rank."""
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
    """Check that every sample occurs once."""
    for number, found in enumerate(parts.first):
        counts = np.bincount(np.concatenate(found), minlength=len(parts.labels))
        if (counts != 1).any():
            sample = int(np.argmax(counts != 1))
            what = f"sum(list(part).count({sample}) for part in {parts.title(number)})"
            return Seen(what, int(counts[sample]), 1)
    return None


def repeatable(parts: Parts) -> Seen | None:
    """Check that equal arguments give equal parts."""
    for number, pair in enumerate(zip(parts.first, parts.again, strict=True)):
        if not all(map(np.array_equal, *pair)):
            return Seen(f"{parts.title(number)} == {parts.title(number)}", False, True)
    return None


def untouched(parts: Parts) -> Seen | None:
    """Check that NumPy's global generator is unchanged."""
    return Seen("np.random.get_state() == before", False, True) if parts.touched else None


def seeds_differ(parts: Parts) -> Seen | None:
    """Check that different seeds give different shares."""
    if seed_ignored(parts):
        return Seen(f"{parts.title(0)} == {parts.title(1)}", True, False)
    return None


def mixed(parts: Parts) -> Seen | None:
    """Check that the samples of a label are not assigned in their order: if ranks share a label,
    consecutive samples change ranks more often than necessary. If a second rank has `MIN_SECOND_RANK_SAMPLES` or more
    samples of a label, chance violates this once in thousands of cases; it is reported only if all
    cases violate it."""
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
    """Check that not all labels have the same shares."""
    if same_shares(parts):
        return Seen(f"{parts.title(0)}: p_0 == p_1", True, False)
    return None


def concentrated(parts: Parts) -> Seen | None:
    """Check that the means of Σ p² and of p over labels and seeds are those of Dir(α, …, α)."""
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
    """Return whether Σ p² is about that of another α."""
    return all(
        abs(float(parts.of_alpha(alpha).mean()) - concentration(alpha_of(alpha), parts.ranks)[0])
        < most
        for alpha in ALPHAS
    )


def counts(parts: Parts) -> list[int]:
    """Return the number of samples assigned in each call."""
    return [sum(map(len, found)) for found in parts.first]


def a_label_missing(parts: Parts) -> bool:
    """Return whether whole labels are on no rank."""
    return bool((parts.held.sum(2) == 0).any())


def same_shares(parts: Parts) -> bool:
    """Return whether all labels have the same shares, apart from rounding to integers."""
    several = parts.shares.shape[1] > 1
    return several and bool((np.ptp(parts.shares, axis=1) < CLOSE).all()) and not evenly(parts)


def evenly(parts: Parts) -> bool:
    """Return whether all shares are equal."""
    return max(means(parts)) < 1 / parts.ranks + 0.02


def seed_ignored(parts: Parts) -> bool:
    """Return whether all seeds give the same parts."""
    alike = [s for s, (a, _) in zip(parts.first, parts.asks, strict=True) if a == ALPHAS[1]]
    return all(all(map(np.array_equal, map(np.sort, alike[0]), map(np.sort, s))) for s in alike[1:])


def means(parts: Parts) -> list[float]:
    """Return the mean of Σ p² for each α."""
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
