"""Simple relations between a student's wrong numbers and the right ones, for mistakes that no rule
with a typical mistake reproduces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.course.differences import (
    WIDER,
    Array,
    Arrays,
    Difference,
    distances,
    exceeds,
    first_difference,
    time_order,
)
from dualml.course.exercise import Answer, ExerciseCall, Requirement

#: Largest tolerance, as a fraction of the largest number, with which numbers that coincide mean
#: something; measured times have a larger one.
PRECISE = 1e-3
#: Number of elements from which a ratio that fits all of them is no coincidence.
MIN_RATIO_ELEMENTS = 3
#: Errors of a requirement that has no one right answer.
UNCOMPUTED = (NotImplementedError, ValueError)
#: Largest number of calls in which a relation is looked for.
MAX_CALLS = 4


@dataclass(frozen=True)
class Relation:
    """A fact about a student's numbers that a person can see.

    Attributes:
        name: name of the message, ``course.relation.NAME``.
        values: values of the message: ``subject`` is ``number`` or ``change``, what the numbers
            are or how an update changes them.
        is_extent: whether it says where numbers are wrong instead of how.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    is_extent: bool = False


def find_relations(
    requirement: Requirement,
    calls: Sequence[ExerciseCall],
    answers: Sequence[Answer],
    call: ExerciseCall,
    difference: Difference,
) -> tuple[Relation, ...]:
    """Return how the numbers of ``difference`` are related to the right ones, at most one relation
    that holds in every wrong call if there is one, and where numbers are wrong.

    Empty if the requirement computes no numbers, or its tolerance is wide.
    """
    found: list[list[Relation]] = []
    extents: list[Relation] = []
    pairs = [(c, a) for c, a in zip(calls, answers, strict=True) if a.trouble is None]
    pairs.sort(key=lambda pair: pair[0] is not call)
    for each, answer in pairs[:MAX_CALLS]:
        try:
            expected, tolerance = requirement.expected(each), requirement.tolerance(each)
        except UNCOMPUTED:
            return ()
        where = difference if each is call else first_difference(answer.arrays, expected, tolerance)
        if where is None:
            continue
        if where.key not in expected[where.rank] or not answer.arrays[where.rank].keys() >= {
            where.key
        }:
            break
        compared = ArrayComparison(each, answer.arrays, expected, tolerance, where.rank, where.key)
        found.append(list(compared.relations()))
        if each is call:
            extents = list(compared.extents())
    if not found:
        return ()
    names = [{relation.name for relation in each} for each in found]
    everywhere = [r for r in found[0] if all(r.name in each for each in names)]
    return (*(everywhere or found[0])[:1], *extents)


@dataclass(frozen=True)
class ArrayComparison:
    """One wrong array of an answer beside the right arrays of the same call."""

    call: ExerciseCall
    arrays: Sequence[Arrays]
    expected: Sequence[Arrays]
    tolerance: Sequence[Arrays]
    rank: int
    key: str

    @property
    def student_array(self) -> Array:
        """The wrong array."""
        return np.asarray(self.arrays[self.rank][self.key])

    @property
    def right_array(self) -> Array:
        """The array that the rule gives in its place."""
        return np.asarray(self.expected[self.rank][self.key])

    def relations(self) -> Iterator[Relation]:
        """Yield the relations of the wrong array, the most telling first."""
        seen, right = self.student_array, self.right_array
        if seen.shape != right.shape:
            yield from shape_relations(seen, right, self.limit, self.call.ranks)
            yield from self.coincidences() if self.is_precise else ()
            return
        if count := int(np.sum(~np.isfinite(seen.astype(np.float64)))):
            yield Relation("not_finite", {"count": count, "size": seen.size})
            return
        if not self.is_precise:
            return
        yield from self.coincidences()
        previous = self.previous()
        pairs: list[tuple[str, Array, Array]] = []
        if previous is not None:
            pairs.append(("change", seen - previous, right - previous))
        else:
            pairs.append(("number", seen, right))
        for subject, a, b in pairs:
            yield from ratios(subject, a, b, self.limit, self.counts())

    @property
    def limit(self) -> float:
        """Largest distance at which two numbers count as equal."""
        return WIDER * float(np.max(self.tolerance[self.rank][self.key]))

    @property
    def is_precise(self) -> bool:
        """Whether the tolerance is so small that equal numbers are no coincidence."""
        size = float(np.max(np.abs(self.right_array), initial=0.0))
        return self.limit <= WIDER * PRECISE * size and self.right_array.size > 0

    def counts(self) -> dict[str, int]:
        """Return the numbers whose multiples and fractions have names: ``ranks`` and
        ``parts``, the micro-batches."""
        parts = int(self.call.options.get("micro_batches", 1))
        found = {"ranks": self.call.ranks, "parts": parts}
        return {name: n for name, n in found.items() if n > 1}

    def is_equal(self, other: Any) -> bool:
        """Return whether an array has the shape of the wrong one and its numbers."""
        other = np.asarray(other)
        if other.shape != self.student_array.shape or other.dtype.kind not in "biuf":
            return False
        return bool(np.all(distances(self.student_array, other) <= self.limit))

    def previous(self) -> Array | None:
        """Return the right array before the update in which it went wrong, or None if the wrong
        array is the result of no update."""
        step, slash, name = self.key.partition("/")
        if not slash or not step.isdigit():
            return None
        before = self.expected[self.rank].get(f"{int(step) - 1}/{name}")
        if before is None:
            own = self.call.arrays[self.rank]
            labels = (f"p/{name}", name, "p") if int(step) == 1 else ()
            before = next((own[label] for label in labels if label in own), None)
        if before is None or np.shape(before) != self.right_array.shape:
            return None
        return np.asarray(before, np.float64)

    def coincidences(self) -> Iterator[Relation]:
        """Yield a relation for each other array whose numbers the wrong one has: of another rank,
        step or name, or what a rank was given. Yield one alone if the update changed nothing, or if
        all numbers are wrongly 0."""
        seen, right = self.student_array, self.right_array
        step, slash, name = self.key.partition("/")
        previous = self.previous()
        if previous is not None and self.is_equal(previous):
            yield Relation("unmoved")
            return
        if np.any(right) and not np.any(seen):
            yield Relation("zero")
            return
        for rank, own in enumerate(self.expected):
            if rank != self.rank and self.key in own and self.is_equal(own[self.key]):
                yield Relation("other_rank", {"rank": rank})
        if slash and step.isdigit():
            for key, value in self.expected[self.rank].items():
                at, _, same = key.partition("/")
                if key != self.key and same == name and self.is_equal(value):
                    yield Relation("other_step", {"step": int(at)})
        for rank, given in enumerate(self.call.arrays):
            if any(self.is_equal(value) for value in given.values()):
                name_of = "given" if rank == self.rank else "given_other"
                yield Relation(name_of, {"rank": rank})
        for key, value in self.expected[self.rank].items():
            same_time = key.partition("/")[0] == step if slash else "/" not in key
            if key != self.key and same_time and self.is_equal(value):
                yield Relation("other_array", {"key": key})

    def extents(self) -> Iterator[Relation]:
        """Yield relations that say how far the mistake reaches: the ranks that are right, the
        arrays of the same update that are right, and the wrong elements if others are right."""
        wrong = [r for r in range(len(self.expected)) if self.is_wrong(r, self.key)]
        well = [
            r for r in range(len(self.expected)) if r not in wrong and self.key in self.expected[r]
        ]
        if well:
            yield Relation("right_ranks", {"ranks": well}, is_extent=True)
        own = self.expected[self.rank]
        time = time_order(own)
        now = [key for key in own if time[key][0] == time[self.key][0] and key != self.key]
        fine = [key for key in now if not self.is_wrong(self.rank, key)]
        if fine:
            yield Relation("right_arrays", {"keys": fine}, is_extent=True)
        if self.student_array.shape == self.right_array.shape and self.student_array.size > 1:
            off = (
                distances(self.student_array, self.right_array)
                > self.tolerance[self.rank][self.key]
            )
            bad = np.flatnonzero(off)
            if 0 < bad.size < off.size:
                ends = [[int(i) for i in np.unravel_index(n, off.shape)] for n in bad[[0, -1]]]
                values = {"count": bad.size, "size": off.size, "first": ends[0], "last": ends[1]}
                yield Relation("wrong_elements", values, is_extent=True)

    def is_wrong(self, rank: int, key: str) -> bool:
        """Return whether a rank's array under this key exceeds its tolerance; False for one that
        the rule does not give."""
        if key not in self.expected[rank]:
            return False
        seen = self.arrays[rank].get(key)
        return exceeds(seen, self.expected[rank][key], self.tolerance[rank][key])


def shape_relations(seen: Array, right: Array, limit: float, ranks: int) -> Iterator[Relation]:
    """Yield the relation, if there is one, of an array of a wrong shape to the ``right`` one: the
    same numbers transposed or reshaped, or ``ranks`` times too many or too few elements."""
    if seen.size == right.size:
        turned = seen.ndim == right.ndim == 2 and seen.shape == right.shape[::-1]
        if turned and np.all(distances(seen.T, right) <= limit):
            yield Relation("transposed")
        elif np.all(distances(seen.ravel(), right.ravel()) <= limit):
            yield Relation("reshaped")
    elif ranks > 1 and seen.size == ranks * right.size:
        yield Relation("too_many", {"n": ranks})
    elif ranks > 1 and right.size == ranks * seen.size:
        yield Relation("too_few", {"n": ranks})


def ratios(
    subject: str, a: Array, b: Array, limit: float, counts: Mapping[str, int]
) -> Iterator[Relation]:
    """Yield the relations a = r·b that hold in every element, with r = −1, n, 1/n, 2 or 1/2;
    without one, from `MIN_RATIO_ELEMENTS` elements on, that with any other r, else a constant
    difference a − b. ``subject`` says what a and b are."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    size = float(np.max(np.abs(b), initial=0.0))
    if not size or limit > size / 10:
        return

    def fits(ratio: float) -> bool:
        """Return whether a is this multiple of b."""
        return bool(np.all(np.abs(a - ratio * b) <= limit * max(1.0, abs(ratio))))

    named = {"opposite": -1.0}
    named |= {f"times_{name}": float(n) for name, n in counts.items()}
    named |= {f"share_{name}": 1.0 / n for name, n in counts.items()}
    named |= {"twice": 2.0, "half": 0.5}
    known = [name for name, ratio in named.items() if fits(ratio)]
    for name in known:
        n = counts.get(name.partition("_")[2], 0)
        yield Relation(name, {"subject": subject, "n": n})
    if known or a.size < MIN_RATIO_ELEMENTS:
        return
    ratio = float(np.sum(a * b) / np.sum(b * b))
    if fits(ratio) and abs(ratio - 1) > 1e-3:
        yield Relation("times", {"subject": subject, "ratio": ratio})
    elif fits_shift(a, b, limit):
        yield Relation("shifted", {"subject": subject, "by": float(np.mean(a - b))})


def fits_shift(a: Array, b: Array, limit: float) -> bool:
    """Return whether a − b is the same number, within ``limit``, in every element, and not 0."""
    off = a - b
    return bool(np.ptp(off) <= 2 * limit and abs(float(np.mean(off))) > limit)
