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

from dualml.parity.causes.element_orders import element_orders, index_mutations
from dualml.parity.causes.mutation import Mutation, MutationContext, Shape
from dualml.parity.causes.operands import constant_fills, operand_mutations
from dualml.parity.causes.settings import (
    is_probability,
    joint_settings,
    scale_factors,
    setting_values,
)
from dualml.parity.causes.tables import (
    ACTIVATIONS,
    COUNTS,
    EXTRAS,
    FAMILIES,
    FORMS,
    IDLE,
    INDEXED,
    MASKS,
    OPERATOR_FUNCTIONS,
    PADDED,
    PLAIN,
    UNARY,
)
from dualml.parity.models.operations import Operation

#: Form of a function → kind of the mutation, if the kind is not ``function``.
FORM_KINDS = {
    "unbiased": "attribute",
    "tiled": "layout",
    "halves": "layout",
    "over_all": "attribute",
}
#: Number of inputs of a call that are swapped.
TENSORS = 4
#: Number of concatenated parts that are swapped.
PARTS = 8


def pairwise_swaps(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    """Return the orders in which two items of the same shape are swapped."""
    orders = []
    for i, j in combinations(range(min(len(shapes), PARTS)), 2):
        if shapes[i] == shapes[j] and len(shapes[i]):
            order = list(range(len(shapes)))
            order[i], order[j] = j, i
            orders.append(tuple(order))
    return orders


def interleaved_orders(count: int) -> list[tuple[int, ...]]:
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


def candidate_mutations(
    operation: Operation, shapes: Sequence[Shape], context: MutationContext
) -> Iterator[Mutation]:
    """Yield every mutation to try on one operation, likely ones first.

    Args:
        shapes: shapes of its tensor inputs.
    """

    def mutate(
        kind: str, action: str, argument: str | float = "", value: Any = None, old: Any = None
    ) -> Mutation:
        """Return a mutation of this operation alone."""
        return Mutation(kind, action, (operation.number,), operation.name, argument, value, old)

    name = OPERATOR_FUNCTIONS.get(operation.name, operation.name)
    for argument, old in operation.attributes.items():
        if argument in IDLE or argument in COUNTS.get(name, ()):
            continue
        kind = (
            "mask"
            if name in MASKS and argument in ("value", "other", "diagonal", "is_causal")
            else "attribute"
        )
        for value in setting_values(argument, old, operation, context):
            sort = "constant" if argument == "fill_value" else kind
            if argument in ("other", "alpha", "argument 1", "exponent"):
                none = value == (0 if name in ("add", "sub") else 1)
                sort = "missing" if none else "constant"
            yield mutate(sort, "set", argument, value, old)
    for argument, old in operation.attributes.items():
        if isinstance(old, float) and argument not in IDLE and old not in (0.0, 1.0):
            values = [
                v for v in context.numbers if isinstance(v, float) and v not in (old, 1 - old)
            ]
            yield from (
                mutate("constant", "everywhere", old, v, old)
                for v in dict.fromkeys([*values, *(1 - v for v in values)])
                if not is_probability(argument, operation) or 0 <= v <= 1
            )
    out = operation.outputs[0]
    for i, shape in enumerate(shapes):
        if shape == out:
            yield mutate("missing", "drop", i)
    word = "mask" if name in MASKS else "function"
    yield from (
        mutate(word, "function", "", other, name)
        for family in FAMILIES
        if name in family
        for other in family
        if other != name
    )
    yield from (
        mutate(FORM_KINDS.get(form, "function"), "form", form, True, False)
        for form in FORMS.get(name, ())
    )
    yield from (
        mutate("constant", "form", form, eps, False)
        for form in FORMS.get(name, ())
        if form.startswith("eps")
        for eps in context.numbers
        if 0 < eps < 1
    )
    if name in ("sqrt", "rsqrt"):
        yield from (mutate("order", "form", "eps_behind", c, 0.0) for c in context.added)
    if name in PADDED and isinstance(operation.attributes.get("padding"), int | list):
        yield from (
            mutate("attribute", "pad", "padding", way, operation.attributes["padding"])
            for way in ("same", "same_before", "behind", "before")
        )
    yield from (
        mutate(
            "attribute", "settings", " and ".join(ours), tuple(theirs.items()), tuple(ours.values())
        )
        for ours, theirs in joint_settings(name, operation.attributes)
    )
    if name in UNARY:
        yield from (mutate("function", "instead", "", f, name) for f in ACTIVATIONS[:-1])
    elif (name,) in PLAIN:
        yield from (mutate("function", "instead", "", f, name) for f in PLAIN if f != (name,))
    yield from (
        mutate("mask" if name in MASKS else "missing", "omit", i)
        for i, given in enumerate(operation.inputs)
        if i and not given.startswith("parameter:")
    )
    for i, j in combinations(range(min(len(shapes), TENSORS)), 2):
        if shapes[i] == shapes[j] and operation.inputs[i] != operation.inputs[j]:
            yield mutate("operand", "exchange", "", (i, j))
    yield from operand_mutations(operation, shapes, context)
    for i, c in constant_fills(name, shapes, context):
        yield mutate("constant", "input", i, ("fill", c))
    if name in INDEXED:
        steps = dict.fromkeys(
            [1, -1, *(int(n) for n in context.numbers if n == int(n) and 0 < n < 64)]
        )
        yield from (
            mutate("constant", "input", i, ("shift", n))
            for i in range(min(2, len(shapes)))
            for n in steps
        )
    if name in ("cat", "concat", "stack", "hstack", "vstack") and len(shapes) > 1:
        orders = list(permutations(range(len(shapes)))) if len(shapes) <= 3 else []
        orders += (
            [*interleaved_orders(len(shapes)), *pairwise_swaps(shapes)] if len(shapes) > 3 else []
        )
        for order in (
            tuple(range(len(shapes)))[::-1],
            (len(shapes) - 1, *range(len(shapes) - 1)),
            *orders,
        ):
            yield mutate("layout", "reorder", "", order)
    yield from (
        mutate("layout", "outputs", "", order) for order in pairwise_swaps(operation.outputs)
    )
    yield from (mutate("operand", "earlier", i, way) for i, way in context.carried_inputs)
    if name in ("__getitem__", "__setitem__"):
        yield from index_mutations(operation)
        if operation.number in context.unsliced:
            yield mutate("layout", "whole").with_sites(
                (context.unsliced[operation.number], operation.number)
            )
    rows_of = [shape[:1] for shape in shapes[:2]]
    if (
        name in ("cross_entropy", "nll_loss")
        and len(rows_of) == 2
        and rows_of[0] == rows_of[1] != ()
    ):
        rows, *rest = shapes[1]
        lengths = {s[1] for s in context.shapes.values() if len(s) > 1 and s[0] * s[1] == rows}
        yield from (
            mutate("layout", "shifted", "", n) for n in sorted({*lengths, *rest[:1]}) if n > 1
        )
    if operation.number in context.only_consumer:
        # The next call is applied to one of the inputs first.
        for i, shape in enumerate(shapes):
            if shape == out and not operation.inputs[i].startswith("parameter:"):
                yield mutate(
                    "order", "swap", i, context.only_consumer[operation.number] - operation.number
                )
    yield from (mutate("extra", "dropout", "", rate) for rate in context.rates)
    yield from (mutate("extra", "output", "", f) for f in EXTRAS)
    if any(shape == out for shape in shapes):
        yield mutate("extra", "twice")
    factors = scale_factors(context)
    yield from (mutate("constant", "output", "", ("scale", c)) for c in factors)
    yield from (mutate("layout", "output", "", t) for t in element_orders(out))
    yield from (mutate("dtype", "output", "", (t,)) for t in ("half", "bfloat", "round", "trunc"))
    yield from (mutate("dtype", "lower", "", kind) for kind in ("float16", "bfloat16"))
    for i, shape in enumerate(shapes):
        if operation.inputs[i].startswith("parameter:"):
            yield from (mutate("layout", "input", i, t) for t in element_orders(shape))
        else:
            yield from (mutate("extra", "input", i, f) for f in EXTRAS)
            yield from (mutate("layout", "input", i, t) for t in element_orders(shape))
            yield from (mutate("constant", "input", i, ("scale", c)) for c in factors)
        yield from (mutate("dtype", "input", i, (t,)) for t in ("half", "bfloat", "round", "trunc"))
        yield mutate("mask" if name in MASKS else "extra", "input", i, ("invert",))
    if name in ("lstm", "gru"):
        gates = 4 if name == "lstm" else 3
        for order in permutations(range(gates)):
            if order != tuple(range(gates)):
                yield mutate("layout", "inputs", "", ("chunks", 0, *order))
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
            mutate("layout", "output", "", ("from_input", *order))
            for order in permutations(range(len(shapes[0])))
        )
