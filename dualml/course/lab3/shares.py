"""Parts with skewed labels that a student's code returned: properties, and detectors of typical
mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.chance import mean_bound, share_variance, square_sum_moments
from dualml.course.lab3.lists import Violation

ALPHAS = (0.1, 1.0, 100.0)
#: Error of Σ p² that may come from rounding shares to integers.
ROUNDED = 0.01
#: Minimum number of a label's samples on its second rank to recognise an order.
MIN_SECOND_RANK_SAMPLES = 5
#: Distance below which two tables of shares count as equal, apart from rounding to integers.
CLOSE = 0.06


@dataclass(frozen=True)
class LabelParts:
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
    def label_counts(self) -> Array:
        """Number of samples of each label on each rank, shape (asks, labels, ranks)."""
        labels, of = np.unique(self.labels, return_inverse=True)
        counted = [
            [np.bincount(of[part], minlength=len(labels)) for part in parts] for parts in self.first
        ]
        held: Array = np.array(counted).transpose(0, 2, 1)
        return held

    @cached_property
    def label_shares(self) -> Array:
        """Share p_y[r] of each label y on each rank r, shape (asks, labels, ranks); only labels of
        which every call assigns some."""
        totals = self.label_counts.sum(2, keepdims=True)
        dealt = (totals > 0).all((0, 2))
        shares: Array = self.label_counts[:, dealt] / totals[:, dealt]
        return shares

    def sums_of_squares(self, alpha: float) -> Array:
        """Return Σ p² over the ranks for every seed and label with one α, shape (seeds, labels);
        one 0 if nothing is assigned."""
        chosen = [a == alpha for a, _ in self.asks]
        squares: Array = (self.label_shares[chosen] ** 2).sum(-1)
        return squares if squares.size else np.zeros(1)


Holds = Callable[[LabelParts], Violation | None]


def check_indices(parts: LabelParts) -> Violation | None:
    """Check that a result has one list of valid sample numbers per rank."""
    for number, found in enumerate(parts.first):
        if len(found) != parts.ranks:
            return Violation(f"len({parts.title(number)})", len(found), parts.ranks)
    for kind, dims in zip(parts.kinds, parts.dims, strict=True):
        if dims != 1 or kind not in "iu":
            what = f"{parts.title(0)}[r]"
            return (
                Violation(f"np.ndim({what})", dims, 1)
                if dims != 1
                else Violation(f"{what}.dtype.kind", kind, "i")
            )
    every = np.concatenate([part for found in parts.first for part in found])
    if len(every) and not 0 <= every.min() <= every.max() < len(parts.labels):
        return Violation("max(samples)", int(every.max()), len(parts.labels) - 1)
    return None


def check_coverage(parts: LabelParts) -> Violation | None:
    """Check that every sample occurs once."""
    for number, found in enumerate(parts.first):
        counts = np.bincount(np.concatenate(found), minlength=len(parts.labels))
        if (counts != 1).any():
            sample = int(np.argmax(counts != 1))
            what = f"sum(list(part).count({sample}) for part in {parts.title(number)})"
            return Violation(what, int(counts[sample]), 1)
    return None


def check_repeatable(parts: LabelParts) -> Violation | None:
    """Check that equal arguments give equal parts."""
    for number, pair in enumerate(zip(parts.first, parts.again, strict=True)):
        if not all(map(np.array_equal, *pair)):
            return Violation(f"{parts.title(number)} == {parts.title(number)}", False, True)
    return None


def check_global_rng(parts: LabelParts) -> Violation | None:
    """Check that NumPy's global generator is unchanged."""
    return Violation("np.random.get_state() == before", False, True) if parts.touched else None


def check_seeds_differ(parts: LabelParts) -> Violation | None:
    """Check that not all seeds give the same parts for α = 1."""
    if ignores_seed(parts):
        return Violation(f"{parts.title(0)} == {parts.title(1)}", True, False)
    return None


def check_shuffled(parts: LabelParts) -> Violation | None:
    """Check that the samples of a label are not assigned in their order: if ranks share a label,
    consecutive samples change ranks more often than necessary. If a second rank has
    `MIN_SECOND_RANK_SAMPLES` or more samples of a label, chance violates this once in thousands of
    cases; it is reported only if all cases violate it."""
    seen: tuple[int, int] | None = None
    for found, held in zip(parts.first, parts.label_counts, strict=True):
        holder = np.full(len(parts.labels), -1)
        for rank, part in enumerate(found):
            holder[part] = rank
        for label, own in zip(np.unique(parts.labels), held, strict=True):
            ranks = holder[parts.labels == label]
            if np.sort(own)[-2] >= MIN_SECOND_RANK_SAMPLES and (ranks >= 0).all():
                least = int((own > 0).sum()) - 1
                if int((np.diff(ranks) != 0).sum()) > least:
                    return None
                seen = seen or (int(label), least)
    if seen is None:
        return None
    what = f"sum(np.diff(rank_of[labels == {seen[0]}]) != 0), {parts.title(0)}"
    return Violation(what, seen[1], f"> {seen[1]}")


def check_label_shares(parts: LabelParts) -> Violation | None:
    """Check that not all labels have the same shares; equal shares on all ranks pass here."""
    if has_equal_label_shares(parts):
        return Violation(f"{parts.title(0)}: p_0 == p_1", True, False)
    return None


def check_concentration(parts: LabelParts) -> Violation | None:
    """Check that the means of Σ p² and of p over labels and seeds are those of Dir(α, …, α)."""
    if not parts.label_shares.size:
        return Violation(f"sum(map(len, {parts.title(0)}))", 0, len(parts.labels))
    for alpha in ALPHAS:
        squares, (mean, variance) = (
            parts.sums_of_squares(alpha),
            square_sum_moments(alpha, parts.ranks),
        )
        most = mean_bound(variance, squares.size) + ROUNDED
        if abs(squares.mean() - mean) > most:
            return Violation(
                f"mean(Σ_r p_r²), α = {alpha:g}",
                round(float(squares.mean()), 3),
                f"{mean:.3f} ± {most:.3f}",
            )
        shares = parts.label_shares[[a == alpha for a, _ in parts.asks]]
        most = mean_bound(share_variance(alpha, parts.ranks), squares.size) + ROUNDED
        for rank, share in enumerate(shares.mean((0, 1))):
            if abs(share - 1 / parts.ranks) > most:
                return Violation(
                    f"mean(p_{rank}), α = {alpha:g}",
                    round(float(share), 3),
                    f"{1 / parts.ranks:.3f} ± {most:.3f}",
                )
    return None


# --- typical mistakes -----------------------------------------------------------------------------


def matches_alpha(
    parts: LabelParts, alpha_of: Callable[[float], float], most: float = 0.05
) -> bool:
    """Return whether for each α the mean of Σ p² is within ``most`` of the one expected with
    ``alpha_of(α)``."""
    return all(
        abs(
            float(parts.sums_of_squares(alpha).mean())
            - square_sum_moments(alpha_of(alpha), parts.ranks)[0]
        )
        < most
        for alpha in ALPHAS
    )


def total_counts(parts: LabelParts) -> list[int]:
    """Return the number of samples assigned in each call."""
    return [sum(map(len, found)) for found in parts.first]


def misses_label(parts: LabelParts) -> bool:
    """Return whether in some call a whole label is on no rank."""
    return bool((parts.label_counts.sum(2) == 0).any())


def has_equal_label_shares(parts: LabelParts) -> bool:
    """Return whether all labels have the same shares, apart from rounding to integers, while the
    ranks' shares differ."""
    several = parts.label_shares.shape[1] > 1
    return (
        several
        and bool((np.ptp(parts.label_shares, axis=1) < CLOSE).all())
        and not has_even_shares(parts)
    )


def has_even_shares(parts: LabelParts) -> bool:
    """Return whether all ranks have about equal shares of every label, whatever α."""
    return max(mean_squares(parts)) < 1 / parts.ranks + 0.02


def ignores_seed(parts: LabelParts) -> bool:
    """Return whether all seeds give the same parts for α = 1, in any order of their samples."""
    alike = [s for s, (a, _) in zip(parts.first, parts.asks, strict=True) if a == ALPHAS[1]]
    return all(all(map(np.array_equal, map(np.sort, alike[0]), map(np.sort, s))) for s in alike[1:])


def mean_squares(parts: LabelParts) -> list[float]:
    """Return for each α of `ALPHAS` the mean of Σ p² over seeds and labels."""
    return [float(parts.sums_of_squares(alpha).mean()) for alpha in ALPHAS]


DETECTORS: dict[str, Callable[[LabelParts], bool]] = {
    "draw_not_repeatable": lambda parts: check_repeatable(parts) is not None,
    "draw_global": lambda parts: parts.touched,
    "draw_seed_ignored": ignores_seed,
    "skew_label_numbers": misses_label,
    "skew_twice": lambda parts: max(total_counts(parts)) > len(parts.labels),
    "skew_lost": lambda parts: min(total_counts(parts)) < len(parts.labels),
    "skew_in_order": lambda parts: check_shuffled(parts) is not None,
    "skew_same_shares": has_equal_label_shares,
    "skew_label_whole": lambda parts: min(mean_squares(parts)) > 0.999,
    "skew_even": has_even_shares,
    "skew_alpha_ignored": lambda parts: np.ptp(mean_squares(parts)) < 0.05,
    "skew_alpha_inverted": lambda parts: matches_alpha(parts, lambda alpha: 1 / alpha),
    "skew_alpha_divided": lambda parts: matches_alpha(parts, lambda alpha: alpha / parts.ranks),
}
