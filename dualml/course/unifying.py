"""One name for one mistake: requirements of the same class or function that fail by it agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dualml.course.exercise import Answer, ExerciseCall, Requirement
from dualml.course.judge import Judgement, coarse_limit_of, explains

#: Requirement, one of its calls, and the answer to it.
Answered = tuple[tuple[Requirement, ExerciseCall], Answer]


def unify_mistakes(
    judgements: Sequence[Judgement], answered: Sequence[Answered]
) -> list[Judgement]:
    """Return the judgements with one mistake for each class or function where one explains more of
    its requirements than any other does: where only one rank trains, say, two mistakes can give the
    same numbers. Errors of one line have the mistake that the first of them names."""
    unified = list(judgements)
    targets = dict.fromkeys(j.requirement.target for j in judgements)
    for target in targets:
        own = [n for n, j in enumerate(judgements) if j.requirement.target == target]
        named = [n for n in own if judgements[n].difference is not None and judgements[n].flags]
        if len({judgements[n].flags for n in named}) > 1:
            explain_most(unified, named, answered)
    first: dict[tuple[str, str, int], tuple[str, ...]] = {}
    for n, j in enumerate(unified):
        if j.trouble is not None and j.trouble.line and j.mistakes:
            key = j.requirement.target, j.trouble.kind, j.trouble.line
            unified[n] = replace(j, mistakes=first.setdefault(key, j.mistakes))
    return unified


def explain_most(
    judgements: list[Judgement], numbers: Sequence[int], answered: Sequence[Answered]
) -> None:
    """Replace, in place, the mistakes of judgements by those of the judgement whose mistakes
    explain most of them, wherever these explain the answers. Only judgements at the indices
    ``numbers`` are considered."""

    def explained(known: Judgement) -> list[int]:
        """Return the numbers of the judgements whose answers the mistakes of ``known`` explain."""
        return [
            n
            for n in numbers
            if judgements[n].flags == known.flags
            or all(
                explains(r, call, answer, known.flags, coarse_limit_of(r, call))
                for (r, call), answer in answered
                if r is judgements[n].requirement
            )
        ]

    found = {n: explained(judgements[n]) for n in numbers}
    best = judgements[max(found, key=lambda n: len(found[n]))]
    for n in max(found.values(), key=len):
        if judgements[n].flags <= best.flags:
            continue  # the others of its mistakes do not show here
        judgements[n] = replace(
            judgements[n], mistakes=best.mistakes, flags=best.flags, places=best.places
        )
