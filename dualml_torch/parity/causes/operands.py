"""Names of the values that replace an operand of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.operations import Operation, call_number
from dualml_torch.parity.causes.call_actions import NUMBERS
from dualml_torch.parity.operations import BoundCall

Value = torch.Tensor


def earlier_operand(change: Mutation, name: str, calls: Sequence[Operation]) -> str:
    """Return the name of a value from which ``name`` was computed: input number ``change.value[0]``
    (from 0) of the call that made ``name``, or, if there are more numbers, that input's own earlier
    value, found likewise.

    Raises:
        ValueError: no call made it, or the call has fewer inputs.
    """
    for position in change.value:
        number = call_number(name)
        if number is None or position >= len(calls[number].inputs):
            raise ValueError(f"nothing before {name}")
        name = calls[number].inputs[position]
    return name


def other_operand(change: Mutation, number: int) -> str:
    """Return the name of the value that replaces an operand of call ``number``. For a mutation with
    several sites, a call's output (``op:3``) is moved by as many calls as ``number`` is from the
    first site."""
    value = operand_name(change)
    if value.startswith("op:") and len(change.sites) > 1:
        back = change.sites[0] - (call_number(value) or 0)
        tail = value[value.index("[") :] if "[" in value else ""
        return f"op:{number - back}{tail}"
    return value


def operand_name(change: Mutation) -> str:
    """Return the name of the value that a mutation uses, or of which it uses a part:
    ``change.value`` or the first entry of that."""
    return change.value if isinstance(change.value, str) else str(change.value[0])


def put_value(
    change: Mutation,
    func: Any,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    value: Value,
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return positional and keyword arguments of a call in which the one named ``change.argument``,
    a number in the original call, is the tensor ``value``."""
    bound = BoundCall(func, name, args, kwargs)
    bound.set_argument(str(change.argument), value)
    return bound.args, bound.kwargs


def select_rows(change: Mutation, value: Value) -> Value:
    """Return a value as it is; if ``change.old`` names indices of the other side and an order of
    axes, the rows of the value at these indices, with their axes in that order."""
    if change.old is None:
        return value
    name, order = change.old
    return torch.nn.functional.embedding(NUMBERS[name].long(), value).permute(tuple(order))


def select_part(change: Mutation, value: Value) -> Value:
    """Return the part of a value that a mutation names by (name, axis, index), without that axis;
    all of it for a name alone and for the action ``earlier``."""
    return (
        value
        if isinstance(change.value, str) or change.action == "earlier"
        else value.select(*change.value[1:])
    )
