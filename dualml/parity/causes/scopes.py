"""Widen a mutation from one call to others: of the same line, of the same kind, in the same
module."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.operations import Operation

#: Actions that may apply at several calls.
SCOPED = (
    "set",
    "settings",
    "drop",
    "output",
    "input",
    "inputs",
    "function",
    "instead",
    "twice",
    "exchange",
    "detach",
    "form",
    "pad",
    "operand",
    "borrow",
    "index",
    "indices",
    "reorder",
    "lower",
    "numbers",
    "omit",
    "swap",
    "outputs",
    "earlier",
    "dropout",
)


def on_line(change: Alteration, operations: Sequence[Operation]) -> list[Alteration]:
    """Return the mutation at its call, at all calls of its expression, and at all calls of its
    line.

    A helper function, for example, is called for queries and for keys.
    """
    if change.action not in SCOPED:
        return [change]
    site = operations[change.sites[0]]
    like = [
        one
        for one in operations
        if one.name == site.name
        and same_line(one, site)
        and (
            one.outputs == site.outputs or (one.module == site.module and ranks(one) == ranks(site))
        )
    ]
    expression = tuple(one.number for one in like if one.place == site.place)
    line = tuple(one.number for one in like if kept(change, one))
    return [change.at(sites) for sites in dict.fromkeys((change.sites, expression, line))]


def same_line(x: Operation, y: Operation) -> bool:
    """Whether two calls come from the same source line."""
    return x.place == y.place or (
        x.place is not None
        and y.place is not None
        and (x.place.file, x.place.line) == (y.place.file, y.place.line)
    )


def kept(change: Alteration, one: Operation) -> bool:
    """Whether a call has the setting that the mutation changes."""
    return change.action != "set" or one.attributes.get(str(change.argument)) == change.old


def role(one: Operation) -> str:
    """Return the module's name with ``*`` for its numbers: the same layer of any block has one
    pattern."""
    return re.sub(r"\d+", "*", one.module)


def ranks(one: Operation) -> list[int]:
    """Return the number of axes of each output."""
    return [len(shape) for shape in one.outputs]


def scopes(change: Alteration, operations: Sequence[Operation]) -> list[Alteration]:
    """Return the mutation in every scope: its call, all calls of its line, all similar calls, its
    modules."""
    if change.action not in SCOPED or not change.sites:
        return [change]
    site = operations[change.sites[0]]
    if len(change.sites) > 1 and change.action == "detach":
        return [change]
    like = [one for one in operations if one.name == site.name and kept(change, one)]
    expression = [one.number for one in like if one.place == site.place]
    line = [one.number for one in like if same_line(one, site)]
    alls = [one.number for one in like]
    if change.action == "borrow":  # one call of the module: its operations are consecutive
        own = str(change.argument)
        below = [one.number for one in operations if f"{one.module}.".startswith(f"{own}.")]
        return [change.at(below)]
    if change.action == "swap":
        followed = operations[site.number + int(change.value)].name
        alls = [
            one.number
            for one in like
            if (behind := one.number + int(change.value)) < len(operations)
            and operations[behind].name == followed
            and f"op:{one.number}" in operations[behind].inputs
        ]
        line = [n for n in alls if operations[n].place == site.place]
        return [
            change.at(sites) for sites in dict.fromkeys((change.sites, *map(tuple, (line, alls))))
        ]
    if change.action == "operand":
        return [change.at(sites) for sites in dict.fromkeys([change.sites, tuple(expression)])]
    module = site.module.rpartition(".")[2]
    near = [
        one.number
        for one in operations
        if one.name == site.name
        and one.module.rpartition(".")[2] == module
        and (change.action == "set" and one.attributes.get(str(change.argument)) == change.old)
    ]
    part = [one.number for one in like if same_line(one, site) and role(one) == role(site)]
    # A number that differs between the calls here, but not in the port.
    number = change.action == "set" and type(change.value) is int and type(change.old) is int
    lines = [one for one in operations if one.name == site.name and same_line(one, site)]
    each = [one.number for one in lines] if number else []
    inside = [[one.number for one in like if pattern.match(one.module)] for pattern in parts(site)]
    sites = (change.sites, *map(tuple, (expression, part, line, alls, near, each, *inside)))
    return [change.at(one) for one in dict.fromkeys(sites) if one]


def parts(site: Operation) -> list[re.Pattern[str]]:
    """Return patterns for the modules around a call, each also with any block number before the
    last part."""
    names = site.module.split(".")
    patterns = []
    for depth in range(1, len(names) + 1):
        around = ".".join(names[:depth])
        *before, last = re.split(r"(?=[^.]*$)", around, maxsplit=1) if depth > 1 else ("", around)
        for head in dict.fromkeys((re.escape(before[0]), wild(before[0]))):
            patterns.append(re.compile(head + re.escape(last) + r"(\.|$)"))
    return patterns


def wild(name: str) -> str:
    """Return a regular expression for a name in which each number may be any other number."""
    return r"\d+".join(map(re.escape, re.split(r"\d+", name)))
