"""What could be wrong with one operation: every alteration that is tried on it.

The list is made from the operation itself: each setting to its neighbours and to what the other
side uses, each input and output in another arrangement, each term left out or doubled, each operand
replaced by another of its shape. Nothing here knows a mistake by heart; an alteration is believed
only when the numbers of the other side follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from dualml.parity.causes.alteration import Alteration, Around, Shape
from dualml.parity.causes.arrangements import arrangements, indices
from dualml.parity.causes.settings import scales, settings
from dualml.parity.causes.tables import (
    ACTIVATIONS,
    COUNTS,
    EXTRAS,
    FAMILIES,
    FORMS,
    IDLE,
    MASKS,
    PADDED,
    SAME,
    UNARY,
)
from dualml.parity.models.operations import Operation


def alterations(one: Operation, shapes: Sequence[Shape], around: Around) -> Iterator[Alteration]:
    """Everything that is tried on one operation, likely things first.

    Args:
        shapes: of its tensor inputs.
    """

    def alter(
        kind: str, action: str, argument: str | float = "", value: Any = None, old: Any = None
    ) -> Alteration:
        return Alteration(kind, action, (one.number,), one.name, argument, value, old)

    name = SAME.get(one.name, one.name)
    for argument, old in one.attributes.items():
        if argument in IDLE or argument in COUNTS.get(name, ()):
            continue
        kind = (
            "mask"
            if name in MASKS and argument in ("value", "other", "diagonal", "is_causal")
            else "attribute"
        )
        for value in settings(argument, old, one, around):
            sort = kind
            if argument in ("other", "alpha", "argument 1", "exponent"):
                none = value == (0 if name in ("add", "sub") else 1)
                sort = "missing" if none else "constant"
            yield alter(sort, "set", argument, value, old)
    for argument, old in one.attributes.items():
        if isinstance(old, float) and argument not in IDLE and old not in (0.0, 1.0):
            values = [v for v in around.numbers if isinstance(v, float) and v not in (old, 1 - old)]
            yield from (
                alter("constant", "everywhere", old, v, old)
                for v in dict.fromkeys([*values, *(1 - v for v in values)])
            )
    out = one.outputs[0]
    for i, shape in enumerate(shapes):
        if shape == out:
            yield alter("missing", "drop", i)
    word = "mask" if name in MASKS else "function"
    yield from (
        alter(word, "function", "", other, name)
        for family in FAMILIES
        if name in family
        for other in family
        if other != name
    )
    yield from (
        alter("function" if form != "unbiased" else "attribute", "form", form, True, False)
        for form in FORMS.get(name, ())
    )
    if name in PADDED and isinstance(one.attributes.get("padding"), int | list):
        yield from (
            alter("attribute", "pad", "padding", way, one.attributes["padding"])
            for way in ("same", "same_before", "behind", "before")
        )
    if name in UNARY:
        yield from (alter("function", "instead", "", f, name) for f in ACTIVATIONS[:-1])
    if len(shapes) >= 2 and len(one.inputs) == 2 and shapes[0] == shapes[1]:
        yield alter("operand", "exchange")
    for i, given in enumerate(one.inputs):
        for other in operands(given, shapes[i], around):
            skipped = other in around.made_of.get(given, ())
            yield alter("missing" if skipped else "operand", "operand", i, other, given)
        if given.startswith("parameter:"):
            for module in neighbours(given, shapes[i], around):
                yield alter("operand", "borrow", *module)
        if given.startswith("parameter:"):
            yield alter("missing", "input", i, ("neutral",))
            for other in same_shape(given, shapes[i], around):
                yield alter("operand", "parameters", i, other, given)
    if name in ("cat", "concat", "stack", "hstack", "vstack") and len(shapes) > 1:
        orders = list(permutations(range(len(shapes)))) if len(shapes) <= 3 else []
        for order in (
            tuple(range(len(shapes)))[::-1],
            (len(shapes) - 1, *range(len(shapes) - 1)),
            *orders,
        ):
            yield alter("layout", "reorder", "", order)
    if name == "__getitem__":
        yield from indices(one)
    if one.number in around.sole:
        yield alter("order", "swap", "", around.sole[one.number])
    yield from (alter("extra", "output", "", f) for f in EXTRAS)
    if any(shape == out for shape in shapes):
        yield alter("extra", "twice")
    factors = scales(around)
    yield from (alter("constant", "output", "", ("scale", c)) for c in factors)
    yield from (alter("layout", "output", "", t) for t in arrangements(out))
    yield from (alter("dtype", "output", "", (t,)) for t in ("half", "bfloat", "round", "trunc"))
    for i, shape in enumerate(shapes):
        if one.inputs[i].startswith("parameter:"):
            yield from (alter("layout", "input", i, t) for t in arrangements(shape))
        else:
            yield from (alter("extra", "input", i, f) for f in EXTRAS)
            yield from (alter("layout", "input", i, t) for t in arrangements(shape))
            yield from (alter("constant", "input", i, ("scale", c)) for c in factors)
        yield from (alter("dtype", "input", i, (t,)) for t in ("half", "bfloat", "round", "trunc"))
        yield alter("mask" if name in MASKS else "extra", "input", i, ("invert",))
    if name in ("lstm", "gru"):
        gates = 4 if name == "lstm" else 3
        for order in permutations(range(gates)):
            if order != tuple(range(gates)):
                yield alter("layout", "inputs", "", ("chunks", 0, *order))
    if name in (
        "reshape",
        "view",
        "flatten",
        "permute",
        "transpose",
        "swapaxes",
        "T",
        "mT",
        "unflatten",
    ):
        yield from (
            alter("layout", "output", "", ("from_input", *order))
            for order in permutations(range(len(shapes[0])))
        )


def operands(given: str, shape: Shape, around: Around) -> list[str]:
    """Other values of the same shape, those that the other side took first, then the nearest."""
    same = [
        name
        for name in reversed(list(around.shapes))
        if around.shapes[name] == shape and not name.startswith("parameter:")
    ]
    if given.startswith("parameter:"):
        same = same_shape(given, shape, around)
    first = [name for name in around.operands if around.shapes.get(name) == shape]
    return [name for name in dict.fromkeys([*first, *same[:24]]) if name != given]


def neighbours(given: str, shape: Shape, around: Around) -> list[tuple[str, str, str]]:
    """Modules that hold a parameter of the same shape under the same last name: (prefix, other's
    prefix, prefix)."""
    parts = given.removeprefix("parameter:").split(".")
    prefixes = []
    for other in [*around.operands, *same_shape(given, shape, around)]:
        names = other.removeprefix("parameter:").split(".")
        if (
            not other.startswith("parameter:")
            or names == parts
            or around.shapes.get(other) != shape
        ):
            continue
        tail = 0
        while tail < min(len(parts), len(names)) and parts[-1 - tail] == names[-1 - tail]:
            tail += 1
        if 0 < tail < min(len(parts), len(names)) or (tail and len(parts) == len(names)):
            prefix, own = ".".join(names[: len(names) - tail]), ".".join(parts[: len(parts) - tail])
            prefixes.append((own, prefix, own))
    return list(dict.fromkeys(prefixes))


def same_shape(given: str, shape: Shape, around: Around) -> list[str]:
    return [
        name
        for name, other in around.shapes.items()
        if other == shape and name.startswith("parameter:") and name != given
    ][:16]
