"""Strict validation of files, and one-line messages for invalid ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dualml.common.errors import did_you_mean, escape_unprintable
from dualml.common.json_types import JsonMapping, JsonObject

MAX_VALUE_CHARS = 80  # characters of an invalid value that a message repeats
MAX_NAME_CHARS = 100  # characters; with affixes, a file name has at most 255 bytes
#: Beginning of the tags of a union, which stand in the place of an error but are no keys.
TAG_PREFIX = "kind:"
#: Type of the errors of values that a `Restricted` setting does not take.
RESTRICTED = "restricted"


class StrictModel(BaseModel):
    """Pydantic base model: frozen, no unknown keys, no implicit conversions, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Restricted:
    """Annotation of a setting that takes fewer values in one kind of table than in others.

    Attributes:
        reason: text of the error for other values, with its remedy. ``{value}`` is the value, and
            the name of a field above this one is that field's value.
        accepts: function that returns whether a value of the annotated type is taken, called with
            the value and those of the fields ``earlier``.
        schema: keys of the JSON schema that say so.
        earlier: fields above this one on which it depends. If one of them is invalid, that error
            is reported alone.
        covers_default: whether the default is refused as well, if it is not accepted.
    """

    reason: str
    accepts: Callable[..., bool]
    schema: JsonMapping = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    covers_default: bool = True

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema of the annotated type, followed by the check."""
        return core_schema.with_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, inner: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonObject:
        """Return the JSON schema of the annotated type with the keys of ``schema``."""
        return {**handler(inner), **self.schema}

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        """Return a value that is taken; raise ``reason`` as the error of any other."""
        above = info.data or {}
        if not above.keys() >= {*self.earlier}:
            return value
        if self.accepts(value, *(above[name] for name in self.earlier)):
            return value
        text = self.reason.format_map(defaultdict(str, {**above, "value": value}))
        raise PydanticCustomError(RESTRICTED, "{text}", {"text": text})


def describe_validation_error(
    error: ValidationError,
    model: type[BaseModel],
    problem: JsonMapping | None = None,
    path_of: Callable[[Sequence[str]], Sequence[str]] = list,
) -> str:
    """Describe the `first_problem` of an error (or ``problem``) in one line, with key and value.

    Args:
        model: the schema that raised the error, in which known keys are looked up.
        problem: one of ``error.errors()`` to describe instead of the first.
        path_of: function that returns the path of a key as users write it, for its path in
            ``model``.
    """
    first = problem or first_problem(error)
    path = key_path(first["loc"])
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
    quoted = quoted or first["type"] == RESTRICTED
    shown = "" if quoted else f"; received {clip_text(repr(received))}"
    return f"{where}: {message}{shown}" if where else f"{message}{shown}"


def clip_text(text: str) -> str:
    """Escape unprintable characters and truncate the text to `MAX_VALUE_CHARS` characters and an
    ellipsis."""
    text = escape_unprintable(text)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} …"


def first_problem(error: ValidationError) -> JsonMapping:
    """Return the first of ``error.errors()`` that is not about a `Restricted` setting; if all are,
    the first of all."""
    return min(error.errors(), key=lambda problem: problem["type"] == RESTRICTED)


def key_path(loc: Sequence[str | int]) -> list[str]:
    """Return the keys and indices of ``loc``, the place in a validation error, as texts; without
    the tags of unions, which are no keys."""
    return [str(part) for part in loc if not str(part).startswith(TAG_PREFIX)]


def known_keys(model: type[BaseModel], parents: Sequence[str]) -> list[str]:
    """Return the keys that the schema allows in the table at the path ``parents``; those of every
    kind where a table has several.

    Parts of the path that the schema does not name, such as the name of an arm, are skipped.
    """
    here = [model]
    for part in parents:
        fields = [table.model_fields[part] for table in here if part in table.model_fields]
        if fields:  # else a free key, such as the name of an arm
            here = [inner for field in fields for inner in find_models(field.annotation)]
    return list(dict.fromkeys(key for table in here for key in table.model_fields))


def find_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the pydantic models of which a type annotation consists: the annotation itself, or the
    members of a union or the values of a mapping in it. The models' own fields are not searched."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from find_models(inner)
