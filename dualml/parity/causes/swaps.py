"""Enumerate swaps of two values within a line: ``g * h + (1 - g) * x`` with x and h exchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

from dualml.parity.causes.mutation import Mutation, Shape
from dualml.parity.models.operations import Operation

#: Largest number of consecutive lines that are changed together.
LINES = 4


@dataclass(frozen=True)
class SourceLine:
    """Consecutive calls of one source line.

    Attributes:
        key: file, line number and module.
        numbers: numbers of the calls.
        given: values that enter from elsewhere, in order, without parameters.
    """

    key: tuple[str, int, str]
    numbers: tuple[int, ...]
    given: tuple[str, ...]


def group_by_line(operations: Sequence[Operation]) -> list[SourceLine]:
    """Return the lines of a step in order: groups of consecutive calls with the same `line_key`."""
    rows = []
    for key, calls in groupby(operations, key=line_key):
        group = list(calls)
        own = {name for one in group for name in one.output_names()}
        given = dict.fromkeys(
            name
            for one in group
            for name in one.inputs
            if name not in own and name.startswith(("op:", "input:"))
        )
        rows.append(SourceLine(key, tuple(one.number for one in group), tuple(given)))
    return rows


def line_key(one: Operation) -> tuple[str, int, str]:
    """Return file, line number and module of a call; the module separates modules that share the
    line. ``("", -1, "")`` if the place is unknown."""
    return ("", -1, "") if one.place is None else (one.place.file, one.place.line, one.module)


def swap_mutations(
    number: int, known: Sequence[SourceLine], shapes: Mapping[str, Shape]
) -> Iterator[Mutation]:
    """Yield mutations that swap two values of equal shape, no parameters, that enter a line of
    calls.

    Each swap is tried on this execution of the line; on it and the following lines of its module
    that take both values, up to `LINES` in all; on all executions of the line; and on all
    executions of all these lines.

    Args:
        number: number of a call (`Operation.number`); only the first call of a line yields swaps.
        known: all lines of the step.
        shapes: shapes of values by name; scalars are not swapped.
    """
    at = next((i for i, line in enumerate(known) if number in line.numbers), None)
    if at is None or number != known[at].numbers[0] or known[at].key[1] < 0:
        return
    own = known[at]
    for x, y in combinations(own.given, 2):
        if shapes.get(x, ()) != shapes.get(y) or not shapes[x]:
            continue
        window = [own]
        for line in known[at + 1 :]:
            if line.key[2] != own.key[2] or len(window) == LINES:
                break
            window += [line] if x in line.given and y in line.given else []
        places = [(line.key[:2], line.given.index(x), line.given.index(y)) for line in window]
        everywhere = [
            (line, line.given[i], line.given[j])
            for key, i, j in places
            for line in known
            if line.key[:2] == key and max(i, j) < len(line.given)
        ]
        for rows in (
            [(own, x, y)],
            [(line, x, y) for line in window],
            [row for row in everywhere if row[0].key[:2] == own.key[:2]],
            everywhere,
        ):
            sites = sorted(n for line, _, _ in rows for n in line.numbers)
            value = tuple((line.numbers[0], line.numbers[-1], p, q) for line, p, q in rows)
            yield Mutation("operand", "trade", tuple(sites), "", f"{x} and {y}", value)


def swapped_values(change: Mutation, number: int) -> tuple[str, str] | None:
    """Return the two values that a mutation swaps in a call; None if it leaves the call alone."""
    for first, last, x, y in change.value:
        if first <= number <= last:
            return str(x), str(y)
    return None
