"""Lenient reading of an arm in a run folder: the settings that this version knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dualml.experiment.arm import Arm, make_arm
from dualml.experiment.config_diff import TABLES


def read_arm(settings: Mapping[str, Any]) -> Arm:
    """Return the arm of stored settings without unknown keys and values of a wrong type; unknown
    names (a strategy, a partition) stay as they are. It never raises for settings that do not fit
    together, but leaves them unchecked."""
    kept = _known_values(Arm, settings)
    try:
        return make_arm(kept)
    except ValueError:
        tables = {
            key: table.model_construct(**kept[key])
            for key, table in TABLES.items()
            if kept.get(key) is not None
        }
        return Arm.model_construct(**kept | tables)


def _known_values(table: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a table whose values have their default's type; a default of None
    admits any value. The tables of an arm are reduced in the same way."""
    kept: dict[str, Any] = {}
    for name, field in table.model_fields.items():
        value, usual = given.get(name), field.get_default(call_default_factory=True)
        if table is Arm and name in TABLES:
            if isinstance(value, Mapping):
                kept[name] = _known_values(TABLES[name], value)
        elif name in given and (usual is None or _value_type(value) is _value_type(usual)):
            kept[name] = value
    return kept


def _value_type(value: Any) -> type:
    """Return the type of a value, float for every number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float if number else type(value)
