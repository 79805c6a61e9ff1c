"""Judgement of a student's answers: compare them with the rule, and with rules that have typical
mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any, Literal

from dualml.course.differences import WIDER as WIDER
from dualml.course.differences import exceeds
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
    Trouble,
)
from dualml.course.places import place_flags, split_flag
from dualml.course.relations import UNCOMPUTED, Relation, find_relations
from dualml.course.search_work import SearchWork, find_coarse_limit, is_far_off

Status = Literal["met", "not met", "unwritten", "not judged"]
#: Errors raised by an answer whose arrays no driver sends, so that the student's process forged
#: them.
UNREADABLE = (KeyError, ValueError, TypeError, IndexError, OverflowError, MemoryError)
MAX_ERROR_CHARS = 200  # maximum characters of an error
#: Maximum number of mistakes that are combined.
MAX_COMBINED_MISTAKES = 2


@dataclass(frozen=True)
class Judgement:
    """Judgement of one requirement.

    Attributes:
        mistakes: names of the typical mistakes that reproduce the student's numbers.
        flags: the mistakes in the exact form that was found.
        places: mistake → where alone it acts, if not everywhere (`dualml.course.places`).
        relations: what can be seen of numbers that no typical mistake explains.
        is_bounded: whether no mistake was found before the search reached its limit.
        difference, call: the first number that differs, and the call that produced it.
    """

    requirement: Requirement
    status: Status
    trouble: Trouble | None = None
    call: ExerciseCall | None = None
    difference: Difference | None = None
    mistakes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    flags: Flags = RIGHT
    places: Mapping[str, str] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    is_bounded: bool = False


def judge(
    requirement: Requirement,
    calls: Sequence[ExerciseCall],
    answers: Sequence[Answer],
    likely: Flags = RIGHT,
    other: Sequence[str] = (),
    work: SearchWork | None = None,
) -> Judgement:
    """Judge the answers to the calls of a requirement: by the first that ended in an error, else by
    the first with a difference or with arrays that cannot be read.

    Args:
        likely: mistakes found in earlier requirements of the same class.
        other: mistakes that other requirements of the same class can reveal.
        work: work of the search for mistakes in the same class so far.
    """
    work = work or SearchWork()
    for call, answer in zip(calls, answers, strict=True):
        if answer.trouble is not None:
            status: Status = "unwritten" if answer.trouble.kind == "unwritten" else "not met"
            mistakes = requirement.mistakes_of(answer.trouble)
            return Judgement(requirement, status, answer.trouble, call, mistakes=mistakes)
    for call, answer in zip(calls, answers, strict=True):
        try:
            found = requirement.problem(call, answer)
        except UNREADABLE as error:
            trouble = Trouble("unreadable", f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARS])
            return Judgement(requirement, "not met", trouble, call)
        if found is not None:
            difference, mistakes = found
            if mistakes and likely and requirement.follows:
                mistakes = tuple(sorted(likely))
            flags = frozenset(mistakes)
            if not mistakes:
                flags = identify_mistakes(requirement, calls, answers, likely, other, work)
                own = (*requirement.flags, *requirement.placed)
                order = [*own, *other, *map(without_place, sorted(likely))]
                mistakes = tuple(sorted(flags, key=lambda flag: order.index(without_place(flag))))
            # ``aliased#2``: another form of `aliased`
            mistakes = tuple(dict.fromkeys(split_flag(flag)[0] for flag in mistakes))
            inputs = requirement.inputs(call, difference)
            places = {name: place for name, place in map(split_flag, flags) if place}
            more = () if mistakes else find_relations(requirement, calls, answers, call, difference)
            is_bounded = work.is_bounded and not mistakes
            found_as = (mistakes, inputs, flags, places, more, is_bounded)
            return Judgement(requirement, "not met", None, call, difference, *found_as)
    return Judgement(requirement, "met")


def without_place(flag: str) -> str:
    """Return a flag without the place at which it acts."""
    return flag.partition("@")[0]


def agrees(arrays: Sequence[Arrays], expected: Sequence[Arrays], most: Sequence[Arrays]) -> bool:
    """Return whether every ``expected`` array is there in its shape, with differences of at most
    ``most``."""
    return not any(
        exceeds(own.get(key), right, tolerated[key])
        for own, wanted, tolerated in zip(arrays, expected, most, strict=True)
        for key, right in wanted.items()
    )


def identify_mistakes(
    requirement: Requirement,
    calls: Sequence[ExerciseCall],
    answers: Sequence[Answer],
    likely: Flags,
    other: Sequence[str],
    work: SearchWork | None = None,
) -> Flags:
    """Return the first set of typical mistakes, in the order of `candidate_mistakes` and then of
    the requirement's further ones, that reproduces the student's numbers in all calls, with the
    student's choices where the task leaves some; an empty set if none does before ``work`` has
    reached its limit."""
    work = work or SearchWork()
    limits = [coarse_limit_of(requirement, call) for call in calls]
    read = [requirement.adopt_choices(c, a) for c, a in zip(calls, answers, strict=True)]
    pairs = list(zip(read, answers, limits, strict=True))
    further = requirement.further_candidates(calls, answers)
    for flags in chain(candidate_mistakes(requirement, likely, other), further):
        if not work.admit(len(flags)):
            continue
        if all(
            any(explains(requirement, call, answer, flags, far) for call in readings)
            for readings, answer, far in pairs
        ):
            return flags
    return RIGHT


def coarse_limit_of(requirement: Requirement, call: ExerciseCall) -> float:
    """Return the distance that no rounding explains (`find_coarse_limit`); infinity if the
    requirement has no one right answer, or mistakes give numbers of another size."""
    if not requirement.same_scale:
        return float("inf")
    try:
        return find_coarse_limit(requirement.tolerance(call))
    except UNCOMPUTED:
        return float("inf")


def candidate_mistakes(
    requirement: Requirement, likely: Flags, other: Sequence[str]
) -> Iterator[Flags]:
    """Yield sets of mistakes: single ones (of ``likely``, the requirement's own, ``other``), all of
    ``likely`` together, these with one of its own, its own at each of its places, and pairs of its
    own."""
    own = requirement.flags
    yield from (frozenset({flag}) for flag in sorted(likely))
    yield from (frozenset({flag}) for flag in own)
    yield from (frozenset({flag}) for flag in other if flag not in own)
    if len(likely) > 1:
        yield likely
    if likely:
        yield from (likely | {flag} for flag in own)
    known = [without_place(flag) for flag in sorted(likely) if "@" in flag]
    placed = dict.fromkeys((*known, *(requirement.placed or own)))
    yield from (frozenset({flag}) for flag in place_flags([*placed], requirement.places))
    for count in range(2, MAX_COMBINED_MISTAKES + 1):
        yield from map(frozenset, combinations(own, count))


def explains(
    requirement: Requirement, call: ExerciseCall, answer: Answer, flags: Flags, far: float
) -> bool:
    """Return whether a rule with these mistakes reproduces an answer within `WIDER` times the
    tolerance; False if the mistakes lead to an error. Numbers that are ``far`` off by
    `is_far_off` are not reproduced, whatever the tolerance."""
    try:
        if requirement.rules_out(call, answer, flags):
            return False
        predicted = requirement.expected(call, flags)
        if is_far_off(answer.arrays, predicted, far):
            return False
        tolerance = requirement.tolerance(call, flags)
    except (ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError):
        return False  # with this mistake such an input ends in an error
    wider = [{key: WIDER * most for key, most in each.items()} for each in tolerance]
    return agrees(answer.arrays, predicted, wider)
