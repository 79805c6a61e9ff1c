"""Strict validation of files, and one-line messages for invalid ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dualml.errors import nearest, plain

LONGEST = 80  # characters of an invalid value that a message repeats
LONGEST_NAME = 100  # characters; with affixes, a file name has at most 255 bytes


class Strict(BaseModel):
    """Pydantic base model: frozen, no unknown keys, no implicit conversions, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def explain(
    error: ValidationError, model: type[BaseModel], problem: Mapping[str, Any] | None = None
) -> str:
    """Describe the first validation error (or ``problem``) in one line, with key and value."""
    first = problem or error.errors()[0]
    where = shortened(".".join(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        *parents, last = (str(part) for part in first["loc"])
        return f"unknown key {where}{nearest(last, known_keys(model, parents))}"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "model_type":
        keys = known_keys(model, [str(part) for part in first["loc"]])
        shown = shortened(repr(first.get("input")))
        table = f"needs a table of {', '.join(keys)}; received {shown}"
        return f"{where}: {table}" if where else table
    message = str(first["msg"]).removeprefix("Value error, ")
    received = first.get("input")
    quoted = "received" in message or repr(received) in message or isinstance(received, dict)
    shown = "" if quoted else f"; received {shortened(repr(received))}"
    return f"{where}: {message}{shown}" if where else f"{message}{shown}"


def shortened(text: str) -> str:
    """Escape unprintable characters and truncate the text to `MAX_VALUE_CHARS` characters."""
    text = plain(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def known_keys(model: type[BaseModel], parents: Sequence[str]) -> list[str]:
    """Return the keys that the schema allows under ``parents``."""
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
