"""Enumerate replacements of an operand: a value of its shape, a slice of another, a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.parity.causes.mutation import Mutation, MutationContext, Shape
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation

#: Number of values with one more axis that are examined.
LARGER = 12
#: Functions of a tensor and a number, and number of values that are tried for the number.
ARITHMETIC, NUMBER_VALUES = ("add", "sub", "mul", "div"), 8
#: Largest number of consecutive lines that take the other value together.
LINES = 4


def operand_mutations(
    one: Operation, shapes: Sequence[Shape], around: MutationContext
) -> Iterator[Mutation]:
    """Yield mutations that replace an operand of one call, or of several calls that take it.

    Args:
        shapes: shapes of the call's tensor inputs.
    """

    def mutate(
        kind: str, action: str, argument: str | int, value: object = None, old: object = None
    ) -> Mutation:
        """Return a mutation of this operation alone."""
        return Mutation(kind, action, (one.number,), one.name, argument, value, old)

    for i, given in enumerate(one.inputs):
        lines = around.consumers.get(given, ())
        for other in operand_candidates(given, shapes[i], around):
            skipped = other in around.made_from.get(given, ())
            # The value it was computed from; a table counts as another operand instead.
            skipped = skipped and other not in around.buffers
            alone = skipped and sum(map(len, lines)) == 1
            yield mutate("missing" if alone else "operand", "operand", i, other, given)
            for sites in call_windows(one.number, lines):
                whole = skipped and len(sites) == sum(map(len, lines))
                yield mutate(
                    "missing" if whole else "operand", "rename", "", other, given
                ).with_sites(sites)
        if not given.startswith("parameter:"):
            for part in slice_candidates(given, shapes[i], around):
                yield mutate("operand", "operand", i, part, given)
            continue
        for module in similar_modules(given, shapes[i], around, one.name == "embedding"):
            yield mutate("operand", "borrow", *module)
        yield mutate("missing", "input", i, ("neutral",))
        for other in same_shape_parameters(given, shapes[i], around):
            yield mutate("operand", "parameters", i, other, given)
    for argument, number in number_operands(one):
        for other in operand_candidates(one.inputs[0], one.outputs[0], around)[:NUMBER_VALUES]:
            if not other.startswith("parameter:"):
                yield mutate("operand", "by_value", argument, other, number)


def number_operands(one: Operation) -> list[tuple[str, float]]:
    """Return (argument, number) of the numbers by which a call adds, subtracts, multiplies or
    divides its only tensor; empty for any other call."""
    if OPERATOR_FUNCTIONS.get(one.name, one.name) not in ARITHMETIC or len(one.inputs) != 1:
        return []
    return [
        (name, float(value))
        for name, value in one.attributes.items()
        if name != "alpha" and type(value) in (int, float)
    ]


def call_windows(number: int, lines: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield groups of two or more calls that take a value: those of the line of call ``number``
    with those of all later lines, or of the next up to three, if that call is the first.

    Args:
        lines: the calls that take the value, one list per source line.
    """
    at = next((i for i, calls in enumerate(lines) if number in calls), None)
    if at is None:
        return
    for end in dict.fromkeys([len(lines), *range(at + 2, min(at + LINES, len(lines)) + 1)]):
        sites = sorted(n for calls in lines[at:end] for n in calls)
        if len(sites) > 1 and sites[0] == number:
            yield sites


def slice_candidates(
    given: str, shape: Shape, around: MutationContext
) -> Iterator[tuple[str, int, int]]:
    """Yield the last and first slice of earlier values with one more axis, as (name, axis, index)
    with index −1 or 0, if the slice has this shape. Parameters are left out."""
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


def constant_fills(
    name: str, shapes: Sequence[Shape], around: MutationContext
) -> list[tuple[int, float]]:
    """Return (input, number) pairs: numbers to put in place of an operand of a product or quotient
    of two tensors; empty for other functions.

    The numbers are constants of the other side and axis lengths, without 0 and ±1.
    """
    if name not in ("mul", "div") or len(shapes) != 2:
        return []
    numbers = dict.fromkeys([*around.numbers, *map(float, around.sizes)])
    return [(i, c) for c in numbers if abs(c) not in (0.0, 1.0) for i in (1, 0)]


def operand_candidates(given: str, shape: Shape, around: MutationContext) -> list[str]:
    """Return other values of the same shape: those that the other side took first, then up to 24
    nearest.

    For a parameter these are parameters, otherwise computed values, inputs and buffers.
    """
    same = [
        name
        for name in reversed(list(around.shapes))
        if around.shapes[name] == shape
        and (name in around.buffers or not name.startswith("parameter:"))
    ]
    if given.startswith("parameter:"):
        same = same_shape_parameters(given, shape, around)
    first = [name for name in around.operands if around.shapes.get(name) == shape]
    return [name for name in dict.fromkeys([*first, *same[:24]]) if name != given]


def similar_modules(
    given: str, shape: Shape, around: MutationContext, rows: bool = False
) -> list[tuple[str, str, str]]:
    """Return modules that have a parameter of the same shape and last name, as (prefix of
    ``given``, prefix of the other module, prefix of ``given``).

    Args:
        rows: allow another number of rows, as tables have, and any shape for parameters that the
            other side used at this operation.
    """
    parts = given.removeprefix("parameter:").split(".")
    prefixes = []
    for other in [*around.operands, *same_shape_parameters(given, shape, around, rows)]:
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


def same_shape_parameters(
    given: str, shape: Shape, around: MutationContext, rows: bool = False
) -> list[str]:
    """Return up to 16 other parameters of the same shape; with ``rows`` also those in which only
    the length of the first axis differs."""
    return [
        name
        for name, other in around.shapes.items()
        if (other == shape or (rows and len(other) > 1 and other[1:] == shape[1:]))
        and name.startswith("parameter:")
        and name != given
    ][:16]
