"""Mistakes of exercises whose numbers cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from dualml.course.exercise import Flags
from dualml.course.judge import agrees


def find_look_alikes(
    calls: Sequence[tuple[Any, Any]], flags: Iterable[str]
) -> list[tuple[str, str]]:
    """Return the pairs of mistakes, "" for none, that agree in every call of every requirement.

    Args:
        calls: requirement and one of its calls.
    """

    def flag_set(flag: str) -> Flags:
        return frozenset({flag} if flag else ())

    @cache
    def expected(flag: str, n: int) -> Any:
        requirement, call = calls[n]
        return requirement.expected(call, flag_set(flag))

    @cache
    def tolerance(flag: str, n: int) -> Any:
        requirement, call = calls[n]
        return requirement.tolerance(call, flag_set(flag))

    return [
        (one, other)
        for one, other in combinations(["", *flags], 2)
        if all(
            agrees(expected(one, n), expected(other, n), tolerance(other, n))
            for n in range(len(calls))
        )
    ]
