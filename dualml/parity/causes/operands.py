"""Other values in the place of an operand: of its shape, a part of a larger one, a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.parity.causes.alteration import Alteration, Around, Shape
from dualml.parity.models.operations import Operation

#: Of values with one more axis, how many are looked at.
LARGER = 12
#: How many lines that follow one another take the other value together.
LINES = 4


def other_operands(one: Operation, shapes: Sequence[Shape], around: Around) -> Iterator[Alteration]:
    """Another value for one operand of a call; and for all calls behind it that take it."""

    def alter(
        kind: str, action: str, argument: str | int, value: object = None, old: object = None
    ) -> Alteration:
        return Alteration(kind, action, (one.number,), one.name, argument, value, old)

    for i, given in enumerate(one.inputs):
        lines = around.takers.get(given, ())
        for other in operands(given, shapes[i], around):
            skipped = other in around.made_of.get(given, ())
            # What it was computed from, but for a table: that is another operand.
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
    """All calls of a line and of those that follow it, of the lines that take a value."""
    at = next((i for i, calls in enumerate(lines) if number in calls), None)
    if at is None:
        return
    for end in dict.fromkeys([len(lines), *range(at + 2, min(at + LINES, len(lines)) + 1)]):
        sites = sorted(n for calls in lines[at:end] for n in calls)
        if len(sites) > 1 and sites[0] == number:
            yield sites


def parts(given: str, shape: Shape, around: Around) -> Iterator[tuple[str, int, int]]:
    """The first and the last element along an axis of a larger value: (name, axis, index)."""
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
    """A number of the other side's own call, or a length, for an operand that was computed."""
    if name not in ("mul", "div") or len(shapes) != 2:
        return []
    numbers = dict.fromkeys([*around.numbers, *map(float, around.sizes)])
    return [(i, c) for c in numbers if abs(c) not in (0.0, 1.0) for i in (1, 0)]


def operands(given: str, shape: Shape, around: Around) -> list[str]:
    """Other values of the same shape, those that the other side took first, then the nearest."""
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
    """Modules that hold a parameter of the same shape under the same last name: (prefix, other's
    prefix, prefix).

    Args:
        rows: they may have another number of rows, as tables have.
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
    return [
        name
        for name, other in around.shapes.items()
        if (other == shape or (rows and len(other) > 1 and other[1:] == shape[1:]))
        and name.startswith("parameter:")
        and name != given
    ][:16]
