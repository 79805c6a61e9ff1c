"""JSON files of a run folder: a typed record, one writer, one reader, one check of the version.

What is read may come from another version, from another machine, or from an editor: a problem is
one line with the file and the field, and nothing that was read can surprise who uses it later.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dualml.errors import UserError
from dualml.files import finite, write_json
from dualml.strict import explain

DEEPEST = 32  # lists and tables inside one another
LARGEST = 2**63
SURROGATE = re.compile("[\ud800-\udfff]")

Number = int | float
Count = Annotated[int, Field(ge=0)]
Scalar = str | int | float | bool | None
#: What stands in a path, so that no name leads out of the folder.
Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=100)]


class Record(BaseModel):
    """What a file holds. Keys of later versions are left out; a key that was not given is not
    written, whatever the default of its field."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any) -> Any:
        """Where a field has a default and is never null."""
        if isinstance(value, dict) and None in value.values():
            fields = cls.model_fields
            return {
                key: v
                for key, v in value.items()
                if v is not None or key not in fields or fields[key].default in (None, ...)
                or fields[key].is_required()
            }  # fmt: skip
        return value

    def describe(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class JsonFile(Generic[R]):
    """One kind of file.

    Args:
        name: relative to the folder that has it.
        record: what it holds.
        version: the newest that is read, and the one that is written; None: it carries none.
        bare: whether a file without a version is read as well, as people write it by hand.
    """

    name: str
    record: type[R]
    version: int | None = None
    bare: bool = False

    def read(self, folder: Path) -> R:
        """The file in ``folder``.

        Raises:
            UserError: it is missing, damaged, or of a newer version; the text names the field.
        """
        path = folder / self.name
        value = parse(path)
        if not isinstance(value, dict):
            raise UserError(f"{path}: a table is expected; received {type(value).__name__}")
        self.check_version(path, value)
        return checked(self.record, value, path)

    def read_if_there(self, folder: Path) -> R | None:
        return self.read(folder) if (folder / self.name).exists() else None

    def check_version(self, path: Path, value: dict[str, Any]) -> None:
        if self.version is None:
            return
        if self.bare and "format" not in value:
            return
        version = value.get("format")
        if type(version) is not int or version < 1:
            raise UserError(f"{path}: format: no version number; dualml did not write this file")
        if version > self.version:
            raise UserError(
                f"{path}: written by a newer dualml (format {version}, this one reads "
                f"{self.version}); update dualml"
            )

    def made(self, value: Any) -> R:
        """The record of what was computed, tuples, infinities and all."""
        return self.record.model_validate(finite(value))

    def content(self, record: R) -> dict[str, Any]:
        """What the file says."""
        version = {} if self.version is None else {"format": self.version}
        return {**version, **record.describe()}

    def write(self, folder: Path, record: R) -> None:
        write_json(folder / self.name, self.content(record))

    def remove(self, folder: Path) -> None:
        (folder / self.name).unlink(missing_ok=True)


def checked(record: type[R], value: Any, path: Path) -> R:
    """The record that a value holds; `UserError` with the field where it does not."""
    try:
        return record.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, record)}") from None


def parse(path: Path) -> Any:
    """The value of a JSON file, without what no file of ours has: NaN, numbers beyond 64 bits, text
    that is no Unicode, deep nesting.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return value_of(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except OSError as error:
        raise UserError(f"{path}: not readable: {error.strerror or error}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def value_of(text: bytes) -> Any:
    """Raises `ValueError` with a short text for what `parse` refuses."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} deep") from None
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if (fault := problem(value)) is not None:
        place, why = fault
        raise ValueError(f"{'.'.join(map(str, place[:8]))}: {why}" if place else why)
    return value


def problem(value: Any, depth: int = 0) -> tuple[list[Any], str] | None:
    """Where, inside a value, something is that no file of ours has, and what; None: nothing."""
    if isinstance(value, dict | list):
        if depth == DEEPEST:
            return [], f"nested more than {DEEPEST} deep"
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            if (fault := problem(inner, depth + 1) or problem(key)) is not None:
                return [key, *fault[0]], fault[1]
    elif isinstance(value, float) and not math.isfinite(value):
        return [], "not a finite number"
    elif isinstance(value, int) and abs(value) >= LARGEST:
        return [], "a number beyond 64 bits"
    elif isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
        return [], "not Unicode text"
    return None
