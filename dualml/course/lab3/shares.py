"""Parts with skewed labels that a student's code returned, and their properties apart from the
sizes of the shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import Violation

ALPHAS = (0.1, 1.0, 100.0)
#: Minimum number of a label's samples on its second rank to recognise an order.
MIN_SECOND_RANK_SAMPLES = 5
#: Largest fraction of a rank's samples of a label that it may have again with another seed, on
#: average, for equal shares.
MAX_REPEATED_SHARE = 0.6


@dataclass(frozen=True)
class LabelParts:
    """Parts of all ranks for each (α, seed), of the first and of the second call (``again``).

    Attributes:
        labels: label of each sample.
        asks: (α, seed) of each call.
        kinds, dims: letter of the dtype and number of dimensions of each returned list.
        touched: whether a global random generator was changed.
        changed: number of calls that changed the labels.
        chosen: numbers of the labels whose shares count; None: all.
    """

    labels: Array
    ranks: int
    asks: Sequence[tuple[float, int]]
    first: Sequence[Sequence[Array]]
    again: Sequence[Sequence[Array]]
    kinds: Sequence[str]
    dims: Sequence[int]
    touched: bool
    changed: int = 0
    chosen: tuple[int, ...] | None = None

    def title(self, number: int) -> str:
        """Return call ``number``, from 0, as the student would write it."""
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
        if self.chosen is not None:
            dealt &= np.isin(np.arange(len(dealt)), self.chosen)
        shares: Array = self.label_counts[:, dealt] / totals[:, dealt]
        return shares

    def shares_of(self, alpha: float) -> Array:
        """Return the shares for one α, shape (seeds, labels, ranks)."""
        chosen: Array = self.label_shares[[a == alpha for a, _ in self.asks]]
        return chosen

    def select_labels(self, *numbers: int) -> LabelParts:
        """Return these parts with the shares of some labels alone; ``numbers`` count the different
        labels in ascending order, from 0."""
        selected = replace(self, chosen=numbers)
        selected.__dict__["label_counts"] = self.label_counts  # counted once for all labels
        return selected

    def sums_of_squares(self, alpha: float) -> Array:
        """Return Σ p² over the ranks for every seed and label with one α, shape (seeds, labels);
        one 0 if nothing is assigned."""
        squares: Array = (self.shares_of(alpha) ** 2).sum(-1)
        return squares if squares.size else np.zeros(1)


Holds = Callable[[LabelParts], Violation | None]


def check_indices(parts: LabelParts) -> Violation | None:
    """Check that a result has one list of valid sample numbers per rank. Return the first
    violation, or None."""
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
    """Check that every sample occurs once. Return the first violation, or None."""
    for number, found in enumerate(parts.first):
        counts = np.bincount(np.concatenate(found), minlength=len(parts.labels))
        if (counts != 1).any():
            sample = int(np.argmax(counts != 1))
            what = f"sum(list(part).count({sample}) for part in {parts.title(number)})"
            return Violation(what, int(counts[sample]), 1)
    return None


def check_repeatable(parts: LabelParts) -> Violation | None:
    """Check that equal arguments give equal parts. Return the first violation, or None."""
    for number, pair in enumerate(zip(parts.first, parts.again, strict=True)):
        if not all(map(np.array_equal, *pair)):
            return Violation(f"{parts.title(number)} == {parts.title(number)}", False, True)
    return None


def check_global_rng(parts: LabelParts) -> Violation | None:
    """Check that no global random generator, NumPy's or Python's, was changed. Return the
    violation, or None."""
    return Violation("np.random.get_state() == before", False, True) if parts.touched else None


def check_labels_unchanged(parts: LabelParts) -> Violation | None:
    """Check that the labels that were handed over are unchanged. Return the first violation, or
    None."""
    if parts.changed:
        return Violation(f"labels == before, {parts.title(0)}", False, True)
    return None


def check_seeds_differ(parts: LabelParts) -> Violation | None:
    """Check that not all seeds give the same parts for α = 1. Return the first violation, or
    None."""
    if ignores_seed(parts):
        return Violation(f"{parts.title(0)} == {parts.title(1)}", True, False)
    return None


def check_shuffled(parts: LabelParts) -> Violation | None:
    """Check that the samples of a label are not assigned in their order: if ranks share a label,
    consecutive samples change ranks more often than necessary. If a second rank has
    `MIN_SECOND_RANK_SAMPLES` or more samples of a label, chance violates this once in thousands of
    cases; it is reported only if all cases violate it. Return the first violation, or None."""
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


def repeats_samples(parts: LabelParts) -> bool:
    """Return whether, for the largest α, a rank has mostly the same samples of a label with other
    seeds, on average over pairs of seeds."""
    found = [s for s, (a, _) in zip(parts.first, parts.asks, strict=True) if a == ALPHAS[-1]]
    again = [
        len(np.intersect1d(a, b)) / max(min(len(a), len(b)), 1)
        for one, other in zip(found[::2], found[1::2], strict=False)
        for a, b in zip(one, other, strict=True)
    ]
    return float(np.mean(again)) > MAX_REPEATED_SHARE


def check_samples_vary(parts: LabelParts) -> Violation | None:
    """Check that, for the largest α, a rank has not mostly the same samples with another seed
    (`repeats_samples`). Return the first violation, or None."""
    if repeats_samples(parts):
        which = f"set({parts.title(2 * len(parts.asks) // 3)}[0])"
        return Violation(f"{which} ≈ set(…, other seed)", True, False)
    return None


def ignores_seed(parts: LabelParts) -> bool:
    """Return whether all seeds give the same parts for α = 1, in any order of their samples."""
    alike = [s for s, (a, _) in zip(parts.first, parts.asks, strict=True) if a == ALPHAS[1]]
    return all(all(map(np.array_equal, map(np.sort, alike[0]), map(np.sort, s))) for s in alike[1:])
