"""Enumerate mutations that rotate neighbours instead of halves of a head, in queries and keys.

Rotary positions (Su et al., 2021) turn pairs of elements of each query and key: neighbours in the
paper and in LLaMA's own code, elements half a head apart in GPT-NeoX and in transformers. Only the
products of queries and keys are the same on both sides: one of the two alone reproduces nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation, call_number

#: Functions that multiply queries and keys.
PRODUCTS = ("matmul", "__matmul__", "bmm", "einsum", "baddbmm", "scaled_dot_product_attention")
#: Functions that put the rotated parts of a head together again.
JOINS = ("cat", "concat", "stack", "view_as_real", "__setitem__")
#: Smallest length of a head: two elements have one order of pairs.
MIN_SIZE = 4
#: Largest number of calls from a product back to the head that is rotated.
MAX_CALLS = 60


def rotary_mutations(operations: Sequence[Operation]) -> Iterator[Mutation]:
    """Yield two mutations, if the model rotates queries and keys: one for each order of the
    elements, at all rotated heads of all layers."""
    made = {name: one for one in operations for name in one.output_names()}
    heads: set[str] = set()
    sizes: set[int] = set()
    for one in operations:
        if one.name not in PRODUCTS or len(one.inputs) < 2 or one.inputs[0] not in made:
            continue
        last = output_shape(one.inputs[0], made)[-1:]
        pair = [rotated_head(name, last, made) for name in one.inputs[:2]]
        if pair[0] is not None and pair[1] is not None and pair[0] != pair[1]:
            heads.update(name for name in pair if name)
            sizes.update(last)
    if len(sizes) != 1:
        return
    (size,) = sizes
    sites = tuple(sorted({n for name in heads if (n := call_number(name)) is not None}))
    # A call with several outputs may give queries and keys; others have the first alone.
    indices = tuple(sorted({made[name].output_names().index(name) for name in heads}))
    for action, blocks in (("rotary_neighbours", size // 2), ("rotary_halves", 2)):
        yield Mutation("layout", action, sites, "", "", (blocks, indices))


def rotated_head(name: str, size: tuple[int, ...], made: Mapping[str, Operation]) -> str | None:
    """Return the name of the unrotated head from which an operand of a product was computed; None
    if it was not rotated.

    That is the last value behind the projection, and before any product, whose last axis is as long
    as a head.

    Args:
        size: length of the last axis of a head, an even number.
        made: name of a value → the call that computed it.
    """
    if not size or size[0] < MIN_SIZE or size[0] % 2:
        return None
    before: dict[str, Operation] = {}
    front = [name]
    while front and len(before) < MAX_CALLS:
        value = front.pop()
        one = made.get(value)
        if one is None or value in before:
            continue
        before[value] = one
        # A projection takes a parameter: what is before it belongs to no head.
        if not takes_parameter(one):
            front += one.inputs
    values = sorted(before, key=lambda value: before[value].number)
    starts = [value for value in values if takes_parameter(before[value])]
    if len(starts) != 1:
        return None
    known, products, joins, head = {starts[0]}, 0, 0, None
    for value in values:  # only what the projection leads to, not tables of angles
        one = before[value]
        if value != starts[0] and known.isdisjoint(one.inputs):
            continue
        known.add(value)
        products += OPERATOR_FUNCTIONS.get(one.name, one.name) == "mul" and value != starts[0]
        joins += one.name in JOINS
        if not products and output_shape(value, made)[-1:] == size:
            head = value
    return head if products and joins else None


def takes_parameter(one: Operation) -> bool:
    """Return whether a call takes a parameter."""
    return any(name.startswith("parameter:") for name in one.inputs)


def output_shape(value: str, made: Mapping[str, Operation]) -> tuple[int, ...]:
    """Return the shape of a computed value."""
    one = made[value]
    return one.outputs[one.output_names().index(value)]
