"""Two values of a line that stand in each other's place: ``g * h + (1 - g) * x`` with x and h."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby

from dualml.parity.causes.alteration import Alteration, Shape
from dualml.parity.models.operations import Operation

#: How many lines that follow one another are changed together.
LINES = 4


@dataclass(frozen=True)
class Line:
    """Calls of one line that follow one another.

    Attributes:
        given: values that come from elsewhere, in order; no parameters.
    """

    key: tuple[str, int, str]
    numbers: tuple[int, ...]
    given: tuple[str, ...]


def lines(operations: Sequence[Operation]) -> list[Line]:
    rows = []
    for key, calls in groupby(operations, key=where):
        group = list(calls)
        own = {name for one in group for name in one.names()}
        given = dict.fromkeys(
            name
            for one in group
            for name in one.inputs
            if name not in own and name.startswith(("op:", "input:"))
        )
        rows.append(Line(key, tuple(one.number for one in group), tuple(given)))
    return rows


def where(one: Operation) -> tuple[str, int, str]:
    """File, line, and which of the modules that share it."""
    return ("", -1, "") if one.place is None else (one.place.file, one.place.line, one.module)


def trades(number: int, known: Sequence[Line], shapes: Mapping[str, Shape]) -> Iterator[Alteration]:
    """Pairs of values of the line of a call that change places: there, in lines that follow and
    take both, and in all that these lines do anywhere.

    Args:
        shapes: of values, by name.
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
            yield Alteration("operand", "trade", tuple(sites), "", f"{x} and {y}", value)


def traded(change: Alteration, number: int) -> tuple[str, str] | None:
    """The two values that change places in a call."""
    for first, last, x, y in change.value:
        if first <= number <= last:
            return str(x), str(y)
    return None
