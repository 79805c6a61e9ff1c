"""Enumerate the mutations to try on one operation.

They are derived from the operation itself: each setting takes neighbouring values and those of the
other side, each input and output gets another arrangement, each term is left out or doubled, and
each operand is replaced by another value of its shape. No known mistakes are hard-coded; a mutation
is accepted only if it reproduces the numbers of the other side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

from dualml.parity.causes.alteration import Alteration, Around, Shape
from dualml.parity.causes.arrangements import arrangements, indices
from dualml.parity.causes.operands import filled, other_operands
from dualml.parity.causes.settings import probability, scales, settings, together
from dualml.parity.causes.tables import (
    ACTIVATIONS,
    COUNTS,
    EXTRAS,
    FAMILIES,
    FORMS,
    IDLE,
    INDEXED,
    MASKS,
    PADDED,
    PLAIN,
    SAME,
    UNARY,
)
from dualml.parity.models.operations import Operation

#: Form of a function → kind of the mutation, if the kind is not ``function``.
OF_FORM = {"unbiased": "attribute", "tiled": "layout", "halves": "layout",
           "over_all": "attribute"}  # fmt: skip
#: Number of inputs of a call that are swapped.
TENSORS = 4
#: Number of concatenated parts that are swapped.
PARTS = 8


def exchanges(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    """Return the orders in which two items of the same shape are swapped."""
    orders = []
    for i, j in combinations(range(min(len(shapes), PARTS)), 2):
        if shapes[i] == shapes[j] and len(shapes[i]):
            order = list(range(len(shapes)))
            order[i], order[j] = j, i
            orders.append(tuple(order))
    return orders


def woven(count: int) -> list[tuple[int, ...]]:
    """Return orders that interleave pairs or separate them again; one leading item may stay in
    place."""
    orders = []
    for head in (0, 1):
        rest, first = range(head, count), range(head)
        if len(rest) % 2 == 0:
            half = len(rest) // 2
            orders.append((*first, *rest[::2], *rest[1::2]))
            pairs = zip(rest[:half], rest[half:], strict=True)
            orders.append((*first, *(n for pair in pairs for n in pair)))
    return orders


def alterations(one: Operation, shapes: Sequence[Shape], around: Around) -> Iterator[Alteration]:
    """Yield every mutation to try on one operation, likely ones first.

    Args:
        shapes: shapes of its tensor inputs.
    """

    def alter(
        kind: str, action: str, argument: str | float = "", value: Any = None, old: Any = None
    ) -> Alteration:
        """Return a mutation of this operation alone."""
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
            sort = "constant" if argument == "fill_value" else kind
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
                if not probability(argument, one) or 0 <= v <= 1
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
        alter(OF_FORM.get(form, "function"), "form", form, True, False)
        for form in FORMS.get(name, ())
    )
    yield from (
        alter("constant", "form", form, eps, False)
        for form in FORMS.get(name, ())
        if form.startswith("eps")
        for eps in around.numbers
        if 0 < eps < 1
    )
    if name in ("sqrt", "rsqrt"):
        yield from (alter("order", "form", "eps_behind", c, 0.0) for c in around.added)
    if name in PADDED and isinstance(one.attributes.get("padding"), int | list):
        yield from (
            alter("attribute", "pad", "padding", way, one.attributes["padding"])
            for way in ("same", "same_before", "behind", "before")
        )
    yield from (
        alter(
            "attribute", "settings", " and ".join(ours), tuple(theirs.items()), tuple(ours.values())
        )
        for ours, theirs in together(name, one.attributes)
    )
    if name in UNARY:
        yield from (alter("function", "instead", "", f, name) for f in ACTIVATIONS[:-1])
    elif (name,) in PLAIN:
        yield from (alter("function", "instead", "", f, name) for f in PLAIN if f != (name,))
    yield from (
        alter("mask" if name in MASKS else "missing", "omit", i)
        for i, given in enumerate(one.inputs)
        if i and not given.startswith("parameter:")
    )
    for i, j in combinations(range(min(len(shapes), TENSORS)), 2):
        if shapes[i] == shapes[j] and one.inputs[i] != one.inputs[j]:
            yield alter("operand", "exchange", "", (i, j))
    yield from other_operands(one, shapes, around)
    for i, c in filled(name, shapes, around):
        yield alter("constant", "input", i, ("fill", c))
    if name in INDEXED:
        steps = dict.fromkeys(
            [1, -1, *(int(n) for n in around.numbers if n == int(n) and 0 < n < 64)]
        )
        yield from (
            alter("constant", "input", i, ("shift", n))
            for i in range(min(2, len(shapes)))
            for n in steps
        )
    if name in ("cat", "concat", "stack", "hstack", "vstack") and len(shapes) > 1:
        orders = list(permutations(range(len(shapes)))) if len(shapes) <= 3 else []
        orders += [*woven(len(shapes)), *exchanges(shapes)] if len(shapes) > 3 else []
        for order in (
            tuple(range(len(shapes)))[::-1],
            (len(shapes) - 1, *range(len(shapes) - 1)),
            *orders,
        ):
            yield alter("layout", "reorder", "", order)
    yield from (alter("layout", "outputs", "", order) for order in exchanges(one.outputs))
    yield from (alter("operand", "earlier", i, way) for i, way in around.earlier)
    if name in ("__getitem__", "__setitem__"):
        yield from indices(one)
        if one.number in around.unsliced:
            yield alter("layout", "whole").at((around.unsliced[one.number], one.number))
    rows_of = [shape[:1] for shape in shapes[:2]]
    if (
        name in ("cross_entropy", "nll_loss")
        and len(rows_of) == 2
        and rows_of[0] == rows_of[1] != ()
    ):
        rows, *rest = shapes[1]
        lengths = {s[1] for s in around.shapes.values() if len(s) > 1 and s[0] * s[1] == rows}
        yield from (
            alter("layout", "shifted", "", n) for n in sorted({*lengths, *rest[:1]}) if n > 1
        )
    if one.number in around.sole:
        # The next call is applied to one of the inputs first.
        for i, shape in enumerate(shapes):
            if shape == out and not one.inputs[i].startswith("parameter:"):
                yield alter("order", "swap", i, around.sole[one.number] - one.number)
    yield from (alter("extra", "dropout", "", rate) for rate in around.rates)
    yield from (alter("extra", "output", "", f) for f in EXTRAS)
    if any(shape == out for shape in shapes):
        yield alter("extra", "twice")
    factors = scales(around)
    yield from (alter("constant", "output", "", ("scale", c)) for c in factors)
    yield from (alter("layout", "output", "", t) for t in arrangements(out))
    yield from (alter("dtype", "output", "", (t,)) for t in ("half", "bfloat", "round", "trunc"))
    yield from (alter("dtype", "lower", "", kind) for kind in ("float16", "bfloat16"))
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
