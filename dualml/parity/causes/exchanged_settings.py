"""Enumerate exchanges of two settings: of two neighbouring calls, or of one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import COUNTS, IDLE
from dualml.parity.models.operations import Operation

#: Number of further calls of a function that count as neighbours of one.
NEIGHBOURS = 4


def exchanged_settings(operations: Sequence[Operation], site: Operation) -> Iterator[Mutation]:
    """Yield mutations that exchange a setting of a call with that of another call of the same
    function, up to NEIGHBOURS before it and behind it, at all `similar_pairs`; then those that
    exchange two settings of the call itself. The two values differ and are of one kind."""
    like = [one for one in operations if one.name == site.name]
    at = next((i for i, one in enumerate(like) if one.number == site.number), len(like))
    for other in like[max(at - NEIGHBOURS, 0) : at] + like[at + 1 : at + 1 + NEIGHBOURS]:
        x, y = sorted((site, other), key=lambda one: one.number)
        for name, (old, new) in differing_settings(x, y).items():
            sites = similar_pairs(operations, x, y, name)
            yield Mutation("attribute", "trade_settings", sites, site.name, name, new, old)
    for a, b in combinations(own_settings(site), 2):
        x, y = site.attributes[a], site.attributes[b]
        if kind_of(x) == kind_of(y) != "" and x != y:
            yield Mutation(
                "attribute", "trade_arguments", (site.number,), site.name, f"{a} and {b}", (a, b)
            )


def own_settings(one: Operation) -> list[str]:
    """Return the names of the settings of a call that change its result."""
    return [n for n in one.attributes if n not in IDLE and n not in COUNTS.get(one.name, ())]


def differing_settings(x: Operation, y: Operation) -> dict[str, tuple[Any, Any]]:
    """Return name → values of the settings that two calls of one function have with different
    values of one kind."""
    rows = {n: (x.attributes[n], y.attributes.get(n)) for n in own_settings(x)}
    return {n: (u, v) for n, (u, v) in rows.items() if kind_of(u) == kind_of(v) != "" and u != v}


def kind_of(value: Any) -> str:
    """Return the kind of a setting: ``number``, ``list`` with its length, ``text``, ``flag``; empty
    for others."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        return f"list {len(value)}"
    return "text" if isinstance(value, str) else ""


def similar_pairs(
    operations: Sequence[Operation], x: Operation, y: Operation, name: str
) -> tuple[int, ...]:
    """Return the numbers, in order, of the calls of all pairs that look like the pair of ``x`` and
    a later call ``y``: with the same functions, expressions and distance, and the same values of
    the setting ``name``. The pair itself is among them."""
    sites, by = set(), y.number - x.number
    for one in operations[: len(operations) - by]:
        other = operations[one.number + by]
        if all(
            (u.name, u.place, u.attributes.get(name)) == (v.name, v.place, v.attributes.get(name))
            for u, v in ((one, x), (other, y))
        ):
            sites |= {one.number, other.number}
    return tuple(sorted(sites))
