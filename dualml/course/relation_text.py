"""Texts about the relations between a student's wrong numbers and the right ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualml.common.words import Messages
from dualml.course.differences import Difference
from dualml.course.relations import Relation

#: Beginning of the value of a difference that is one of shapes.
SHAPE = "shape "


def relation_text(relation: Relation, words: Messages) -> str:
    """Return a relation as a sentence."""
    values: dict[str, Any] = dict(relation.values)
    if "subject" in values:
        values["subject"] = words(f"course.subject.{values['subject']}")
    if "ranks" in values:
        values["ranks"] = [words("course.rank", rank=rank) for rank in values["ranks"]]
    if "keys" in values:
        values["names"] = [short_name(key, words) for key in values.pop("keys")]
    if "key" in values:
        values["name"] = short_name(values.pop("key"), words)
    for name in ("ratio", "by"):
        if name in values:
            values[name] = f"{values[name]:.6g}"
    return words(f"course.relation.{relation.name}", **values)


def short_name(key: str, words: Messages) -> str:
    """Return the name of an array without its update: ``3/weight`` → ``weight``, ``1`` →
    ``tensor 1 of the result``."""
    step, slash, name = key.partition("/")
    if slash and step.isdigit():
        return name
    return words("course.tensor", n=key, at="") if key.isdigit() else key


def relation_texts(relations: Sequence[Relation], words: Messages) -> list[str]:
    """Return each relation as a sentence."""
    return [relation_text(relation, words) for relation in relations]


def relation_key(relations: Sequence[Relation], target: str) -> str:
    """Return a key that is equal for unnamed mistakes of a class or function whose numbers are
    related to the right ones in the same way."""
    return f"{target} unknown {' '.join(r.name for r in relations if not r.is_extent)}"


def is_about_shape(difference: Difference) -> bool:
    """Return whether an array is missing or of a wrong shape, so that no number was compared."""
    return isinstance(difference.expected, str) and difference.expected.startswith(SHAPE)


def shape_text(difference: Difference, where: str, words: Messages) -> str:
    """Return what is wrong about an array that is missing or of a wrong shape."""
    expected = words("course.shape", shape=str(difference.expected).removeprefix(SHAPE))
    if difference.value == "nothing":
        return words("course.absent_array", where=where, expected=expected)
    value = words("course.shape", shape=str(difference.value).removeprefix(SHAPE))
    return words("course.shapes", where=where, value=value, expected=expected)


def unknown_key(difference: Mapping[str, Any] | Difference | None, has_inputs: bool) -> str:
    """Return the name of the message that no typical mistake is known: it advises to compute a
    number by hand only if there are the numbers for it."""
    expected = (
        difference.get("expected")
        if isinstance(difference, Mapping)
        else getattr(difference, "expected", None)
    )
    if isinstance(expected, str) and expected.startswith(SHAPE):
        return "course.unknown_shape"
    return "course.unknown" if has_inputs else "course.unknown_alone"
