"""Settings that the modules of a model state: numbers, flags and words among their attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.parity.models.operations import jsonable

#: Name of a module → name of an attribute → its value; the model itself has the empty name.
ModuleSettings = Mapping[str, Mapping[str, Any]]
#: Longest text, and most elements of a list, that count as a setting.
MAX_TEXT, MAX_ITEMS = 40, 8


def plain_settings(attributes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return name → value of the public attributes that are settings (`is_setting`), as JSON.

    Args:
        attributes: (name, value) of each attribute.
    """
    return {
        name: jsonable(value)
        for name, value in attributes
        if not name.startswith("_") and is_setting(value)
    }


def is_setting(value: Any) -> bool:
    """Return whether a value can be a setting: a number, a flag, a text of up to `MAX_TEXT`
    characters, or a list of up to `MAX_ITEMS` numbers."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, list | tuple):
        return len(value) <= MAX_ITEMS and all(isinstance(one, int | float) for one in value)
    return isinstance(value, bool | int | float)


def settings_file(folder: Path, side: str) -> Path:
    """Return the path of the file with the settings of one side, ``a`` or ``b``, in the folder of a
    comparison."""
    return folder / f"{side}.settings.json"


def write_settings(folder: Path, side: str, settings: ModuleSettings) -> None:
    """Write the settings of one side's modules into the folder of a comparison; modules without any
    are left out."""
    write_json(settings_file(folder, side), {name: row for name, row in settings.items() if row})


def read_settings(folder: Path, side: str) -> ModuleSettings:
    """Return the settings that `write_settings` wrote for a side; empty if there is no file that
    can be read."""
    try:
        found: dict[str, dict[str, Any]] = read_json(settings_file(folder, side))
    except (OSError, UserError):
        return {}
    return found
