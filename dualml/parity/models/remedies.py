"""The map of parameters that is the remedy where weights, and not the code, are at fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: Order of the axes of a matrix that is stored the other way round.
TRANSPOSED = ["rearrange", 1, 0]


def map_remedy(cause: Mapping[str, Any], mapping: Sequence[Mapping[str, str]]) -> str:
    """Return the entries of ``--map`` that undo a cause if the code of the second side is right and
    its weights are stored otherwise: transposed, or fused of the same pieces in another order.

    Args:
        cause: one of an explanation's ``causes``, as a dict.
        mapping: the pairs of parameters of the comparison.

    Returns:
        The entries as TOML; empty for any other cause.
    """
    one, operation = cause["alterations"][0], cause.get("place") or {}
    names = [str(name) for name in operation.get("inputs", ())]
    at, value = one["argument"], one["value"]
    # Other layouts have a number or a word for their value: the length of a row, a kind of tiling.
    value = list(value) if one["kind"] == "layout" and isinstance(value, list | tuple) else []
    if one["action"] == "input" and isinstance(at, int):
        names = names[at : at + 1]
    elif one["action"] == "output" and one["operation"] == "linear" and value[:1] == ["chunks"]:
        names, axes = names[1:], len((operation.get("outputs") or [()])[0])
        value = ["chunks", 0, *value[2:]] if value[1] in (-1, axes - 1) else []
    else:
        return ""
    parameters = [name.removeprefix("parameter:") for name in names if is_parameter(name)]
    pairs = [pair for name in parameters for pair in mapping if pair["a"] == name]
    return ", ".join(entry for pair in pairs for entry in map_entries(pair, value))


def is_parameter(name: str) -> bool:
    """Return whether the name of a value in a trace is that of a parameter: ``parameter:NAME``."""
    return name.startswith("parameter:")


def map_entries(pair: Mapping[str, str], value: Sequence[Any]) -> list[str]:
    """Return the map's entries, as TOML, that transpose the second of two paired parameters, or put
    its pieces in another order; empty for any other transform.

    Args:
        value: transform of a mutation: ``["rearrange", 1, 0]`` or ``["chunks", 0, …]`` with the
            order of the pieces.
    """
    name, partner = pair["a"], pair["b"]
    if value == TRANSPOSED and not pair["change"]:
        return [f"{quote(name)} = [{quote(partner)}, {quote('transpose')}]"]
    if value[:2] == ["chunks", 0] and "[" not in name + partner:
        return [
            f"{quote(f'{name}[{i}]')} = {quote(f'{partner}[{j}]')}" for i, j in enumerate(value[2:])
        ]
    return []


def quote(text: str) -> str:
    """Return a text as a quoted string of TOML."""
    return json.dumps(text, ensure_ascii=False)
