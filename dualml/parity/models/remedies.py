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
        cause: of an explanation, as JSON.
        mapping: the pairs of parameters of the comparison.

    Returns:
        The entries as TOML; empty for any other cause.
    """
    one = cause["alterations"][0]
    operation, at = cause.get("place") or {}, one["argument"]
    if (one["kind"], one["action"]) != ("layout", "input") or not isinstance(at, int):
        return ""
    names = [str(name) for name in operation.get("inputs", ())]
    if at >= len(names) or not names[at].startswith("parameter:"):
        return ""
    name = names[at].removeprefix("parameter:")
    pair = next((pair for pair in mapping if pair["a"] == name), None)
    if pair is None:
        return ""
    value, partner = list(one["value"]), pair["b"]
    if value == TRANSPOSED and not pair["change"]:
        return f"{quote(name)} = [{quote(partner)}, {quote('transpose')}]"
    if value[:2] == ["chunks", 0] and "[" not in name + partner:
        pieces = (
            f"{quote(f'{name}[{i}]')} = {quote(f'{partner}[{j}]')}" for i, j in enumerate(value[2:])
        )
        return ", ".join(pieces)
    return ""


def quote(text: str) -> str:
    """Return a text as a string of TOML."""
    return json.dumps(text, ensure_ascii=False)
