"""What a student's answers are worth: beside the rule, and beside rules with typical mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from dualml.course.differences import first_difference
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Call,
    Difference,
    Flags,
    Requirement,
    Trouble,
)

Status = Literal["met", "not met", "unwritten", "not judged"]
#: What becomes of an answer whose arrays are none that a driver sends: a student's process did.
UNREADABLE = (KeyError, ValueError, TypeError, IndexError, OverflowError, MemoryError)
LONGEST = 200  # characters
#: Mistakes that are looked for together.
MOST = 2
#: Of an answer that a mistake explains: so many times the tolerance of the right one.
WIDER = 4.0


@dataclass(frozen=True)
class Judgement:
    """What is said of one requirement.

    Attributes:
        mistakes: names of the typical ones that give the student's numbers.
        flags: the same, each in the form that was found.
        difference, call: the first number that is off, and what had been asked.
    """

    requirement: Requirement
    status: Status
    trouble: Trouble | None = None
    call: Call | None = None
    difference: Difference | None = None
    mistakes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    flags: Flags = RIGHT


def judge(requirement: Requirement, calls: Sequence[Call], answers: Sequence[Answer],
          likely: Flags = RIGHT, other: Sequence[str] = ()) -> Judgement:  # fmt: skip
    """Judge the answers to the calls of a requirement.

    Args:
        likely: mistakes that were found before, in what else the same class does.
        other: mistakes that can show in other requirements of the same class.
    """
    for call, answer in zip(calls, answers, strict=True):
        if answer.trouble is not None:
            status: Status = "unwritten" if answer.trouble.kind == "unwritten" else "not met"
            mistakes = requirement.mistakes_of(answer.trouble)
            return Judgement(requirement, status, answer.trouble, call, mistakes=mistakes)
    for call, answer in zip(calls, answers, strict=True):
        try:
            found = requirement.problem(call, answer)
        except UNREADABLE as error:
            trouble = Trouble("unreadable", f"{type(error).__name__}: {error}"[:LONGEST])
            return Judgement(requirement, "not met", trouble, call)
        if found is not None:
            difference, mistakes = found
            if mistakes and likely and requirement.follows:
                mistakes = tuple(sorted(likely))
            flags = frozenset(mistakes)
            if not mistakes:
                flags = named(requirement, calls, answers, likely, other)
                order = [*requirement.flags, *other, *sorted(likely)]
                # ``aliased#2``: another form of `aliased`
                forms = (flag.partition("#")[0] for flag in sorted(flags, key=order.index))
                mistakes = tuple(dict.fromkeys(forms))
            inputs = requirement.inputs(call, difference)
            return Judgement(
                requirement, "not met", None, call, difference, mistakes, inputs, flags
            )
    return Judgement(requirement, "met")


def agrees(arrays: Sequence[Arrays], expected: Sequence[Arrays], most: Sequence[Arrays]) -> bool:
    """Whether every array is there and within these distances."""
    return first_difference(arrays, expected, most) is None


def named(
    requirement: Requirement,
    calls: Sequence[Call],
    answers: Sequence[Answer],
    likely: Flags,
    other: Sequence[str],
) -> Flags:
    """The fewest typical mistakes that give the student's numbers in all calls."""
    for flags in candidates(requirement, likely, other):
        if all(explains(requirement, c, a, flags) for c, a in zip(calls, answers, strict=True)):
            return flags
    return RIGHT


def candidates(requirement: Requirement, likely: Flags, other: Sequence[str]) -> Iterator[Flags]:
    """Sets of mistakes, the fewest first; of one size, those that are known already and those that
    belong here before the others."""
    own = requirement.flags
    yield from (frozenset({flag}) for flag in sorted(likely))
    yield from (frozenset({flag}) for flag in own)
    yield from (frozenset({flag}) for flag in other if flag not in own)
    if len(likely) > 1:
        yield likely
    if likely:
        yield from (likely | {flag} for flag in own)
    for count in range(2, MOST + 1):
        yield from map(frozenset, combinations(own, count))


def explains(requirement: Requirement, call: Call, answer: Answer, flags: Flags) -> bool:
    try:
        if requirement.rules_out(call, answer, flags):
            return False
        predicted = requirement.expected(call, flags)
        tolerance = requirement.tolerance(call, flags)
    except (ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError):
        return False  # with this mistake such an input ends in an error
    wider = [{key: WIDER * most for key, most in each.items()} for each in tolerance]
    return agrees(answer.arrays, predicted, wider)
