"""Enumerate replacements of an operand: a value of its shape, a slice of another, a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.parity.causes.alteration import Alteration, Around, Shape
from dualml.parity.models.operations import Operation

#: Number of values with one more axis that are examined.
LARGER = 12
#: Largest number of consecutive lines that take the other value together.
LINES = 4


def other_operands(one: Operation, shapes: Sequence[Shape], around: Around) -> Iterator[Alteration]:
    """Yield mutations that replace an operand of one call, or of several calls that take it."""

    def alter(
        kind: str, action: str, argument: str | int, value: object = None, old: object = None
    ) -> Alteration:
        """Return a mutation of this operation alone."""
        return Alteration(kind, action, (one.number,), one.name, argument, value, old)

    for i, given in enumerate(one.inputs):
        lines = around.takers.get(given, ())
        for other in operands(given, shapes[i], around):
            skipped = other in around.made_of.get(given, ())
            # The value it was computed from; a table counts as another operand instead.
            skipped = skipped and other not in around.buffers
            alone = skipped and sum(map(len, lines)) == 1
            yield alter("missing" if alone else "operand", "operand", i, other, given)
            for sites in windows(one.number, lines):
                whole = skipped and len(sites) == sum(map(len, lines))
                yield alter("missing" if whole else "operand", "rename", "", other, given).at(sites)
        if not given.startswith("parameter:"):
            for part in parts(given, shapes[i], around):
                yield alter("operand", "operand", i, part, given)
            continue
        for module in neighbours(given, shapes[i], around, one.name == "embedding"):
            yield alter("operand", "borrow", *module)
        yield alter("missing", "input", i, ("neutral",))
        for other in same_shape(given, shapes[i], around):
            yield alter("operand", "parameters", i, other, given)


def windows(number: int, lines: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the calls of one source line together with those of following lines that take the
    value."""
    at = next((i for i, calls in enumerate(lines) if number in calls), None)
    if at is None:
        return
    for end in dict.fromkeys([len(lines), *range(at + 2, min(at + LINES, len(lines)) + 1)]):
        sites = sorted(n for calls in lines[at:end] for n in calls)
        if len(sites) > 1 and sites[0] == number:
            yield sites


def parts(given: str, shape: Shape, around: Around) -> Iterator[tuple[str, int, int]]:
    """Yield first and last slices of values with one more axis, as (name, axis, index), of a given
    shape."""
    larger = [
        name
        for name in reversed(list(around.shapes))
        if len(around.shapes[name]) == len(shape) + 1 and not name.startswith("parameter:")
    ]
    known = [name for name in around.operands if name in larger]
    for name in list(dict.fromkeys([*known, *larger]))[:LARGER]:
        whole = around.shapes[name]
        for axis in range(len(whole)):
            if whole[:axis] + whole[axis + 1 :] == shape:
                yield from ((name, axis, index) for index in (-1, 0))


def filled(name: str, shapes: Sequence[Shape], around: Around) -> list[tuple[int, float]]:
    """Return (input, number) pairs to put in the place of a computed operand of a product or
    quotient.

    The numbers are constants of the other side and axis lengths.
    """
    if name not in ("mul", "div") or len(shapes) != 2:
        return []
    numbers = dict.fromkeys([*around.numbers, *map(float, around.sizes)])
    return [(i, c) for c in numbers if abs(c) not in (0.0, 1.0) for i in (1, 0)]


def operands(given: str, shape: Shape, around: Around) -> list[str]:
    """Return other values of the same shape: those that the other side took first, then the
    nearest."""
    same = [
        name
        for name in reversed(list(around.shapes))
        if around.shapes[name] == shape
        and (name in around.buffers or not name.startswith("parameter:"))
    ]
    if given.startswith("parameter:"):
        same = same_shape(given, shape, around)
    first = [name for name in around.operands if around.shapes.get(name) == shape]
    return [name for name in dict.fromkeys([*first, *same[:24]]) if name != given]


def neighbours(
    given: str, shape: Shape, around: Around, rows: bool = False
) -> list[tuple[str, str, str]]:
    """Return modules with a parameter of the same shape and last name: (prefix, other prefix,
    prefix).

    Args:
        rows: allow another number of rows, as tables have.
    """
    parts = given.removeprefix("parameter:").split(".")
    prefixes = []
    for other in [*around.operands, *same_shape(given, shape, around, rows)]:
        names = other.removeprefix("parameter:").split(".")
        if (
            not other.startswith("parameter:")
            or names == parts
            or not (around.shapes.get(other) == shape or rows)
        ):
            continue
        tail = 0
        while tail < min(len(parts), len(names)) and parts[-1 - tail] == names[-1 - tail]:
            tail += 1
        if 0 < tail < min(len(parts), len(names)) or (tail and len(parts) == len(names)):
            prefix, own = ".".join(names[: len(names) - tail]), ".".join(parts[: len(parts) - tail])
            prefixes.append((own, prefix, own))
    return list(dict.fromkeys(prefixes))


def same_shape(given: str, shape: Shape, around: Around, rows: bool = False) -> list[str]:
    """Return up to 16 other parameters of the same shape."""
    return [
        name
        for name, other in around.shapes.items()
        if (other == shape or (rows and len(other) > 1 and other[1:] == shape[1:]))
        and name.startswith("parameter:")
        and name != given
    ][:16]
