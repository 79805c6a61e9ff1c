"""Enumerate mutations of the tensors that an operation takes and returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

from dualml.parity.causes.element_orders import element_orders, index_mutations
from dualml.parity.causes.mutation import Mutation, Shape
from dualml.parity.causes.mutation_site import MutationSite
from dualml.parity.causes.operands import constant_fills, operand_mutations
from dualml.parity.causes.settings import scale_factors
from dualml.parity.causes.tables import EXTRAS, INDEXED, MASKS

#: Number of inputs of a call that are swapped.
TENSORS = 4
#: Functions that multiply by a parameter.
GAINS = ("mul", "layer_norm", "rms_norm", "batch_norm", "group_norm")
#: Number of concatenated parts that are swapped.
PARTS = 8


def pairwise_swaps(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    """Return the orders of all items in which two of the first eight swap places that have the same
    shape; scalars are not swapped."""
    orders = []
    for i, j in combinations(range(min(len(shapes), PARTS)), 2):
        if shapes[i] == shapes[j] and len(shapes[i]):
            order = list(range(len(shapes)))
            order[i], order[j] = j, i
            orders.append(tuple(order))
    return orders


def interleaved_orders(count: int) -> list[tuple[int, ...]]:
    """Return orders that interleave pairs or separate them again; one leading item may stay in
    place; the number of the others must be even."""
    orders = []
    for head in (0, 1):
        rest, first = range(head, count), range(head)
        if len(rest) % 2 == 0:
            half = len(rest) // 2
            orders.append((*first, *rest[::2], *rest[1::2]))
            pairs = zip(rest[:half], rest[half:], strict=True)
            orders.append((*first, *(n for pair in pairs for n in pair)))
    return orders


def changed_operands(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that omit, exchange, replace or fill inputs of the call, or shift its
    indices."""
    yield from (
        site.mutate("mask" if site.name in MASKS else "missing", "omit", i)
        for i, given in enumerate(site.operation.inputs)
        if i and not given.startswith("parameter:")
    )
    for i, j in combinations(range(min(len(site.shapes), TENSORS)), 2):
        if (
            site.shapes[i] == site.shapes[j]
            and site.operation.inputs[i] != site.operation.inputs[j]
        ):
            yield site.mutate("operand", "exchange", "", (i, j))
    yield from operand_mutations(site.operation, site.shapes, site.context)
    for i, c in constant_fills(site.name, site.shapes, site.context):
        yield site.mutate("constant", "input", i, ("fill", c))
    if site.name in INDEXED:
        steps = dict.fromkeys(
            [1, -1, *(int(n) for n in site.context.numbers if n == int(n) and 0 < n < 64)]
        )
        yield from (
            site.mutate("constant", "input", i, ("shift", n))
            for i in range(min(2, len(site.shapes)))
            for n in steps
        )


def reordered_parts(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that reorder the parts of a concatenation, or several outputs."""
    if site.name in ("cat", "concat", "stack", "hstack", "vstack") and len(site.shapes) > 1:
        orders = list(permutations(range(len(site.shapes)))) if len(site.shapes) <= 3 else []
        orders += (
            [*interleaved_orders(len(site.shapes)), *pairwise_swaps(site.shapes)]
            if len(site.shapes) > 3
            else []
        )
        for order in (
            tuple(range(len(site.shapes)))[::-1],
            (len(site.shapes) - 1, *range(len(site.shapes) - 1)),
            *orders,
        ):
            yield site.mutate("layout", "reorder", "", order)
    yield from (
        site.mutate("layout", "outputs", "", order)
        for order in pairwise_swaps(site.operation.outputs)
    )


def changed_selections(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that take an input from an earlier call, or select other elements in an
    indexing call."""
    yield from (site.mutate("operand", "earlier", i, way) for i, way in site.context.carried_inputs)
    if site.name in ("__getitem__", "__setitem__"):
        yield from index_mutations(site.operation)
        if site.operation.number in site.context.unsliced:
            yield site.mutate("layout", "whole").with_sites(
                (site.context.unsliced[site.operation.number], site.operation.number)
            )


def shifted_labels(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations of a cross-entropy or NLL loss that shift its labels along the sequence, one
    per possible sequence length; concatenated rows also as a single one."""
    rows_of = [shape[:1] for shape in site.shapes[:2]]
    if (
        site.name in ("cross_entropy", "nll_loss")
        and len(rows_of) == 2
        and rows_of[0] == rows_of[1] != ()
    ):
        rows, *rest = site.shapes[1]
        lengths = {s[1] for s in site.context.shapes.values() if len(s) > 1 and s[0] * s[1] == rows}
        lengths |= {*rest[:1]} or {rows}  # all rows as one: concatenated before they are shifted
        yield from (site.mutate("layout", "shifted", "", n) for n in sorted(lengths) if n > 1)


def swapped_calls(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that apply the next call first, to one of this call's inputs, if it alone
    takes this call's output."""
    if site.operation.number in site.context.only_consumer:
        # The next call is applied to one of the inputs first.
        for i, shape in enumerate(site.shapes):
            if shape == site.output_shape and not site.operation.inputs[i].startswith("parameter:"):
                yield site.mutate(
                    "order",
                    "swap",
                    i,
                    site.context.only_consumer[site.operation.number] - site.operation.number,
                )


def transformed_outputs(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that scale, rearrange or round the first output of the call, or compute the
    call in low precision."""
    factors = scale_factors(site.context)
    yield from (site.mutate("constant", "output", "", ("scale", c)) for c in factors)
    yield from (site.mutate("layout", "output", "", t) for t in element_orders(site.output_shape))
    yield from (
        site.mutate("dtype", "output", "", (t,)) for t in ("half", "bfloat", "round", "trunc")
    )
    yield from (site.mutate("dtype", "lower", "", kind) for kind in ("float16", "bfloat16"))


def transformed_inputs(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that rearrange, scale, invert or round an input, or apply a further function
    to it; parameters are neither scaled nor passed through a further function, but the gain of a
    norm or product is shifted by ±1."""
    factors = scale_factors(site.context)
    for i, shape in enumerate(site.shapes):
        if site.operation.inputs[i].startswith("parameter:"):
            yield from (site.mutate("layout", "input", i, t) for t in element_orders(shape))
            if site.name in GAINS and len(shape) == 1:  # some models store the weight less one
                yield from (site.mutate("constant", "input", i, ("shift", c)) for c in (1.0, -1.0))
        else:
            yield from (site.mutate("extra", "input", i, f) for f in EXTRAS)
            yield from (site.mutate("layout", "input", i, t) for t in element_orders(shape))
            yield from (site.mutate("constant", "input", i, ("scale", c)) for c in factors)
        yield from (
            site.mutate("dtype", "input", i, (t,)) for t in ("half", "bfloat", "round", "trunc")
        )
        yield site.mutate("mask" if site.name in MASKS else "extra", "input", i, ("invert",))


def rearranged_axes(site: MutationSite) -> Iterator[Mutation]:
    """Yield mutations that reorder the gates of an LSTM or GRU, or the axes of a call that only
    rearranges."""
    if site.name in ("lstm", "gru"):
        gates = 4 if site.name == "lstm" else 3
        for order in permutations(range(gates)):
            if order != tuple(range(gates)):
                yield site.mutate("layout", "inputs", "", ("chunks", 0, *order))
    if site.name in (
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
            site.mutate("layout", "output", "", ("from_input", *order))
            for order in permutations(range(len(site.shapes[0])))
        )
