"""JSON files of a run folder: a typed record, and one writer, reader and version check for all.

A file may come from another version, another machine, or an editor. A problem is reported in one
line with the file and the field, and a record that was read needs no further checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dualml.common.errors import UserError
from dualml.common.files import nonfinite_to_none, read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.strict_model import MAX_NAME_CHARS, describe_validation_error

Number = int | float
Count = Annotated[int, Field(ge=0)]
Scalar = str | int | float | bool | None
#: Pattern of a name that is used in a path, so that no name leads out of the folder.
Name = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=MAX_NAME_CHARS)]


class Record(BaseModel):
    """Base of the records that files hold.

    Unknown keys of later versions are dropped. A field that was not set is not written, whatever
    its default.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_missing(cls, value: Any) -> Any:
        """Treat null as missing for fields that have a default and are never null."""
        if isinstance(value, dict) and None in value.values():
            fields = cls.model_fields
            return {
                key: v
                for key, v in value.items()
                if v is not None
                or key not in fields
                or fields[key].default in (None, ...)
                or fields[key].is_required()
            }
        return value

    def describe(self) -> JsonObject:
        """Return the fields that were set, as a dict; records inside it become dicts as well."""
        return self.model_dump(exclude_unset=True)


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class JsonFile(Generic[R]):
    """One kind of JSON file.

    Args:
        name: path relative to its folder.
        record: type of the content.
        version: the newest version that is read, and the one that is written; None: no version.
        bare: whether a file without a version, as people write it by hand, is read as well.
        mode: permissions of a written file.
    """

    name: str
    record: type[R]
    version: int | None = None
    bare: bool = False
    mode: int = 0o666

    def read(self, folder: Path) -> R:
        """Read and check the file in ``folder``.

        Raises:
            UserError: the file is missing, damaged, or of a newer version; the text names the
                field.
        """
        path = folder / self.name
        value = read_json_value(path)
        if not isinstance(value, dict):
            raise UserError(f"{path}: a table is expected; received {type(value).__name__}")
        self.check_version(path, value)
        return validate_record(self.record, value, path)

    def read_if_present(self, folder: Path) -> R | None:
        """Read and check the file in ``folder`` as `read` does; None if it is missing."""
        return self.read(folder) if (folder / self.name).exists() else None

    def check_version(self, path: Path, value: dict[str, Any]) -> None:
        """Raise `UserError` if the version in ``value`` is missing (unless ``bare``), invalid, or
        newer than ``version``; a kind of file without a version passes."""
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

    def make_record(self, value: Any) -> R:
        """Make the record from computed values, which may have tuples; NaN and infinities become
        null."""
        return self.record.model_validate(nonfinite_to_none(value))

    def content(self, record: R) -> JsonObject:
        """Return the content of the file: the record's fields that were set, after its version if
        this kind of file has one."""
        version = {} if self.version is None else {"format": self.version}
        return {**version, **record.describe()}

    def write(self, folder: Path, record: R) -> None:
        """Write the record as the file in ``folder``, which must exist, in place of an earlier
        one."""
        write_json(folder / self.name, self.content(record), self.mode)

    def remove(self, folder: Path) -> None:
        """Remove the file from ``folder``, if it exists."""
        (folder / self.name).unlink(missing_ok=True)


def validate_record(record: type[R], value: Any, path: Path) -> R:
    """Return ``value`` as a record of type ``record``; raise `UserError`, with ``path`` and the
    field, if it is invalid."""
    try:
        return record.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{path}: {describe_validation_error(error, record)}") from None


def read_json_value(path: Path) -> Any:
    """Read the value of a JSON file, within the limits of `dualml.common.parse`.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return read_json(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except OSError as error:
        raise UserError(f"{path}: not readable: {error.strerror or error}") from None
