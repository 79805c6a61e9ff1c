"""Hypotheses that tensors have passed through a transform, for what no known mistake explains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.parity.causes.mutation import Transform
from dualml.parity.finder.causes.base import Arrays, Hypothesis, Observation
from dualml.parity.finder.evaluation import rounding_limit
from dualml.parity.finder.localise import safe_distance
from dualml.parity.models.number_text import format_value
from dualml.parity.transforms import REORDERING, SHIFT, apply_transform, find_transform


def transformed_tensors(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that the deviating tensors are those of the reference after a transform:
    their elements in another order, a function of them, or a number added.

    The transforms are those that a search on a model's graph tries. The first deviating update
    names them; nothing if one of its tensors is none of these.
    """
    step, rank = suspect.violations[0]
    right, found = suspect.expected(step, rank), dict[str, Transform]()
    for name, seen in suspect.recorded(step, rank).items():
        if name not in right or (suspect.phase == "forward" and name != suspect.tensor):
            continue
        far = safe_distance(seen, right[name])
        limit = rounding_limit(suspect, rank, f"{step}/{suspect.phase}/{name}", far)
        if far > limit:
            transform = find_transform(right[name], seen, limit)
            if transform is None:
                return
            found[name] = transform

    def predict(step: int, rank: int) -> Arrays:
        right = suspect.expected(step, rank)
        return {n: apply_transform(t, right[n]) for n, t in found.items() if n in right}

    if found and (told := describe_transforms(found)) is not None:
        cause, detail = told
        yield Hypothesis(cause, predict, detail, fitted_count=int("offset" in detail))


def describe_transforms(found: Mapping[str, Transform]) -> tuple[str, dict[str, Any]] | None:
    """Return the cause that the transforms of all tensors are, and its details; None if they are
    not of one sort."""
    tensors, (sort, *others) = list(found), {sort_of(one) for one in found.values()}
    texts = list(dict.fromkeys(format_value(one) for one in found.values()))
    shown = texts[0] if len(texts) == 1 else texts
    if others:
        return None
    if sort == "offset":
        return "shifted-values", {"tensors": tensors, "offset": [one[1] for one in found.values()]}
    if sort == "order":
        return "rearranged-tensors", {"tensors": tensors, "order": shown}
    return "further-function", {"tensors": tensors, "function": shown}


def sort_of(transform: Transform) -> str:
    """Return ``order`` if a transform puts elements elsewhere, ``offset`` if it adds a number,
    ``function`` if it computes another function."""
    name = transform[0]
    return "order" if name in REORDERING else "offset" if name == SHIFT else "function"
