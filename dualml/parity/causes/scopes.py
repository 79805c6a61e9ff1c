"""Widen a mutation from one call to others: of the same line, of the same kind, in the same
module."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import SCOPED_ACTIONS
from dualml.parity.models.operations import Operation


def widen_to_line(change: Mutation, operations: Sequence[Operation]) -> list[Mutation]:
    """Return the mutation at its call, at all calls of its function in its expression, and at all
    of them in its line that have the setting's old value; just the mutation if its action applies
    at one call only.

    Only calls with the same output shapes, or in the same module, count. A helper function, for
    example, is called for queries and for keys.
    """
    if change.action not in SCOPED_ACTIONS:
        return [change]
    site = operations[change.sites[0]]
    like = [
        one
        for one in operations
        if one.name == site.name
        and is_same_line(one, site)
        and (
            one.outputs == site.outputs
            or (one.module == site.module and output_ranks(one) == output_ranks(site))
        )
    ]
    expression = tuple(one.number for one in like if one.place == site.place)
    line = tuple(one.number for one in like if has_changed_setting(change, one))
    return [change.with_sites(sites) for sites in dict.fromkeys((change.sites, expression, line))]


def is_same_line(x: Operation, y: Operation) -> bool:
    """Return whether two calls come from the same source line, or both from an unknown one."""
    return x.place == y.place or (
        x.place is not None
        and y.place is not None
        and (x.place.file, x.place.line) == (y.place.file, y.place.line)
    )


def has_changed_setting(change: Mutation, one: Operation) -> bool:
    """Return whether a call has the value that the mutation replaces in the setting it changes;
    True for every action but ``set``."""
    return change.action != "set" or one.attributes.get(str(change.argument)) == change.old


def module_pattern(one: Operation) -> str:
    """Return the module's name with ``*`` for its numbers: the same layer of any block has one
    pattern."""
    return re.sub(r"\d+", "*", one.module)


def output_ranks(one: Operation) -> list[int]:
    """Return the number of axes of each output."""
    return [len(shape) for shape in one.outputs]


def widen_scopes(change: Mutation, operations: Sequence[Operation]) -> list[Mutation]:
    """Return the mutation once per scope: at its own calls, all calls of its function in its line,
    all similar calls, and those in each module around it.

    Just the mutation if its action has no wider scope; ``swap`` and ``operand`` have fewer scopes,
    ``borrow`` only that of all calls below its module.
    """
    if change.action not in SCOPED_ACTIONS or not change.sites:
        return [change]
    site = operations[change.sites[0]]
    if len(change.sites) > 1 and change.action == "detach":
        return [change]
    like = [one for one in operations if one.name == site.name and has_changed_setting(change, one)]
    expression = [one.number for one in like if one.place == site.place]
    line = [one.number for one in like if is_same_line(one, site)]
    alls = [one.number for one in like]
    if change.action == "borrow":  # one call of the module: its operations are consecutive
        own = str(change.argument)
        below = [one.number for one in operations if f"{one.module}.".startswith(f"{own}.")]
        return [change.with_sites(below)]
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
            change.with_sites(sites)
            for sites in dict.fromkeys((change.sites, *map(tuple, (line, alls))))
        ]
    if change.action == "operand":
        return [
            change.with_sites(sites) for sites in dict.fromkeys([change.sites, tuple(expression)])
        ]
    module = site.module.rpartition(".")[2]
    near = [
        one.number
        for one in operations
        if one.name == site.name
        and one.module.rpartition(".")[2] == module
        and (change.action == "set" and one.attributes.get(str(change.argument)) == change.old)
    ]
    part = [
        one.number
        for one in like
        if is_same_line(one, site) and module_pattern(one) == module_pattern(site)
    ]
    # A number that differs between the calls here, but not in the port.
    number = change.action == "set" and type(change.value) is int and type(change.old) is int
    lines = [one for one in operations if one.name == site.name and is_same_line(one, site)]
    each = [one.number for one in lines] if number else []
    inside = [
        [one.number for one in like if pattern.match(one.module)]
        for pattern in module_patterns(site)
    ]
    sites = (change.sites, *map(tuple, (expression, part, line, alls, near, each, *inside)))
    return [change.with_sites(one) for one in dict.fromkeys(sites) if one]


def module_patterns(site: Operation) -> list[re.Pattern[str]]:
    """Return patterns for the modules around a call, from the outermost to its own, each also with
    any block number before the last part."""
    names = site.module.split(".")
    patterns = []
    for depth in range(1, len(names) + 1):
        around = ".".join(names[:depth])
        *before, last = re.split(r"(?=[^.]*$)", around, maxsplit=1) if depth > 1 else ("", around)
        for head in dict.fromkeys((re.escape(before[0]), number_wildcard(before[0]))):
            patterns.append(re.compile(head + re.escape(last) + r"(\.|$)"))
    return patterns


def number_wildcard(name: str) -> str:
    """Return a regular expression for a name in which each number may be any other number."""
    return r"\d+".join(map(re.escape, re.split(r"\d+", name)))
