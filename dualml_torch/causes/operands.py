"""Names of the values that replace an operand of a call."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.operations import Operation, number_of

Value = torch.Tensor


def earlier(change: Alteration, name: str, calls: Sequence[Operation]) -> str:
    """Return the name of a value's predecessor: an input of an input of … the call that made it.

    Raises:
        ValueError: no call made it, or the call has fewer inputs.
    """
    for position in change.value:
        number = number_of(name)
        if number is None or position >= len(calls[number].inputs):
            raise ValueError(f"nothing before {name}")
        name = calls[number].inputs[position]
    return name


def operand(change: Alteration, number: int) -> str:
    """Return the name of the replacement operand, relative to the call if there are several
    sites."""
    value = name_in(change)
    if value.startswith("op:") and len(change.sites) > 1:
        back = change.sites[0] - (number_of(value) or 0)
        tail = value[value.index("[") :] if "[" in value else ""
        return f"op:{number - back}{tail}"
    return value


def name_in(change: Alteration) -> str:
    """Return the name of the value that is used, or of which a part is used."""
    return change.value if isinstance(change.value, str) else str(change.value[0])


def viewed(change: Alteration, value: Value) -> Value:
    """Return the part of a value that a mutation names by (name, axis, index); all of it for a name
    alone."""
    return (
        value
        if isinstance(change.value, str) or change.action == "earlier"
        else value.select(*change.value[1:])
    )
