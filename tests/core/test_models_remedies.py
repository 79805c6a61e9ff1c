"""The map of parameters that undoes a cause, and causes of layouts that no map undoes."""

from __future__ import annotations

from typing import Any

import pytest

from dualml.parity.models.remedies import map_remedy

PAIRS = [{"a": "fc.weight", "b": "dense.weight", "change": ""}]


def cause(action: str, operation: str, argument: Any, value: Any) -> dict[str, Any]:
    changed = {
        "kind": "layout",
        "action": action,
        "operation": operation,
        "argument": argument,
        "value": value,
    }
    inputs = ["x", "parameter:fc.weight", "parameter:fc.bias"]
    return {"alterations": [changed], "place": {"inputs": inputs, "outputs": [(8, 6)]}}


def test_a_transposed_weight_is_turned_in_the_map() -> None:
    found = map_remedy(cause("input", "linear", 1, ("rearrange", 1, 0)), PAIRS)
    assert found == '"fc.weight" = ["dense.weight", "transpose"]'


@pytest.mark.parametrize(
    ("action", "operation", "argument", "value"),
    [
        ("shifted", "cross_entropy", "", 32),  # the length of a row
        ("tiled", "repeat", "", "interleaved"),
        ("input", "linear", 0, ("rearrange", 1, 0)),  # the input, no weight
        ("output", "linear", "", ("rearrange", 1, 0)),
    ],
)
def test_no_map_undoes_other_layouts(
    action: str, operation: str, argument: Any, value: Any
) -> None:
    assert map_remedy(cause(action, operation, argument, value), PAIRS) == ""
