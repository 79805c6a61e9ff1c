"""What could be wrong with the lines of a user's own optimizer: each calls something else, for all
parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dualml.parity.causes.alteration import Alteration, Around
from dualml.parity.causes.alterations import alterations
from dualml.parity.models.operations import Operation

ACTIONS = ("set", "function", "instead", "drop", "exchange")


def of_lines(calls: Sequence[Operation], numbers: Sequence[float]) -> Iterator[Alteration]:
    """Alterations of every expression that an optimizer's step has.

    Args:
        calls: of one step.
        numbers: that people use in optimizers.
    """
    shapes = {name: s for one in calls for name, s in zip(one.names(), one.outputs, strict=True)}
    around = Around(tuple(numbers), (), shapes, {}, ())
    # Not the lines of PyTorch's own class.
    ones = {(key(one), one.name): one for one in reversed(calls) if "super(" not in key(one)}
    for (line, name), one in ones.items():
        takers = [x for x in calls if f"op:{one.number}" in x.inputs and key(x) != line]
        if takers and len(one.inputs) == 1:
            value = key(takers[0])
            yield Alteration("optimizer", "line:swap", (), name, takers[0].name, value, line=line)
    for (line, _), one in ones.items():
        given = [shapes.get(name, ()) for name in one.inputs]
        for change in alterations(one, given, around):
            if change.action in ACTIONS:
                action = f"line:{change.action}"
                yield replace(change, kind="optimizer", action=action, sites=(), line=line)


def key(one: Operation) -> str:
    """Line and text of the expression."""
    return "" if one.place is None else f"{one.place.line}:{one.place.code}"
