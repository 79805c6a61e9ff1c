"""Strict validation of files, and one-line messages for invalid ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dualml.common.errors import did_you_mean, escape_unprintable
from dualml.common.json_types import JsonMapping

MAX_VALUE_CHARS = 80  # characters of an invalid value that a message repeats
MAX_NAME_CHARS = 100  # characters; with affixes, a file name has at most 255 bytes


class StrictModel(BaseModel):
    """Pydantic base model: frozen, no unknown keys, no implicit conversions, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def describe_validation_error(
    error: ValidationError,
    model: type[BaseModel],
    problem: JsonMapping | None = None,
    path_of: Callable[[Sequence[str]], Sequence[str]] = list,
) -> str:
    """Describe the first validation error (or ``problem``) in one line, with key and value.

    Args:
        model: the schema that raised the error, in which known keys are looked up.
        problem: one of ``error.errors()`` to describe instead of the first.
        path_of: function that returns the path of a key as users write it, for its path in
            ``model``.
    """
    first = problem or error.errors()[0]
    path = [str(part) for part in first["loc"]]
    where = clip_text(".".join(path_of(path)))
    if first["type"] == "extra_forbidden":
        *parents, last = path
        known = [path_of([*parents, key])[-1] for key in known_keys(model, parents)]
        return f"unknown key {where}{did_you_mean(last, known)}"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "model_type":
        keys = [path_of([*path, key])[-1] for key in known_keys(model, path)]
        shown = clip_text(repr(first.get("input")))
        table = f"needs a table of {', '.join(keys)}; received {shown}"
        return f"{where}: {table}" if where else table
    message = str(first["msg"]).removeprefix("Value error, ")
    received = first.get("input")
    quoted = "received" in message or repr(received) in message or isinstance(received, dict)
    shown = "" if quoted else f"; received {clip_text(repr(received))}"
    return f"{where}: {message}{shown}" if where else f"{message}{shown}"


def clip_text(text: str) -> str:
    """Escape unprintable characters and truncate the text to `MAX_VALUE_CHARS` characters and an
    ellipsis."""
    text = escape_unprintable(text)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"


def known_keys(model: type[BaseModel], parents: Sequence[str]) -> list[str]:
    """Return the keys that the schema allows in the table at the path ``parents``.

    Parts of the path that the schema does not name, such as the name of an arm, are skipped.
    """
    here: Any = model
    for part in parents:
        field = getattr(here, "model_fields", {}).get(part)
        if field is None:
            continue  # a free key, such as the name of an arm
        here = field.annotation
        for inner in getattr(here, "__args__", ()):
            if hasattr(inner, "model_fields"):
                here = inner
    return list(getattr(here, "model_fields", {}))
