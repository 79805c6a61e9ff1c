"""Enumerate mutations that change several calls at once, and that only a whole run can test.

A search changes one call at a time and keeps what reproduces a value of the other side. Some
mistakes are of two calls that only make sense together: queries and keys that are rotated, a mean
and a deviation in another order of channels, a softmax and what is put into its empty rows. Others
change no value of their own call: what an operation in place writes is seen by somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dualml.parity.causes.addends import added_value_mutations
from dualml.parity.causes.lower_spans import lower_span_mutations
from dualml.parity.causes.masked_rows import added_numbers, masked_row_mutations
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.rotary_pairs import rotary_mutations
from dualml.parity.causes.tables import ALIASES, OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.value_matching import TraceOperand

#: Largest length of an axis along which constants are reversed.
MAX_CHANNELS = 16
#: Number of calls between an operation in place and the call that first handed on its tensor.
MAX_HANDED_ON = 6
#: Largest number of mutations of one kind.
MAX_OF_A_KIND = 8


def joint_mutations(
    here: TraceOperand, there: TraceOperand, names: Mapping[str, str]
) -> list[Mutation]:
    """Return up to MAX_OF_A_KIND mutations of each kind that changes several calls at once; kinds
    that change few calls come first.

    Args:
        here: the calls of this side, which are changed.
        there: the calls of the other side.
        names: the other side's parameters → this side's, both with the prefix ``parameter:``.
    """
    operations = here.operations
    kinds = (
        packed_length_mutations(operations),
        masked_row_mutations(here, added_numbers(there.operations)),
        reversed_constant_mutations(here),
        rotary_mutations(operations),
        alias_mutations(operations),
        added_value_mutations(here, there, names),
        lower_span_mutations(here, there),
    )
    return [change for kind in kinds for change in list(kind)[:MAX_OF_A_KIND]]


def packed_length_mutations(operations: Sequence[Operation]) -> Iterator[Mutation]:
    """Yield one mutation, under which every sequence of a packed batch has the full length; nothing
    if the model packs no batch."""
    sites = tuple(one.number for one in operations if one.name == "_pack_padded_sequence")
    if sites:
        yield Mutation("mask", "all_lengths", sites, "_pack_padded_sequence")


def reversed_constant_mutations(here: TraceOperand) -> Iterator[Mutation]:
    """Yield mutations that reverse short constants of the model, such as the means and deviations
    of three channels: for each length all constants that have it, then, if they enter several
    functions or positions, those of each one."""
    groups: dict[int, dict[tuple[str, int], list[int]]] = {}
    fixed = here.constants()
    for one in here.operations:
        if all(name in fixed or name in here.tables for name in one.inputs):
            continue  # what computes with constants alone is reversed where it is used
        for at, name in enumerate(one.inputs):
            if name not in fixed and name not in here.tables:
                continue
            array = here.arrays.get(name, here.values.arrays.get(name))
            if array is None or (length := reversible_length(array)) is None:
                continue
            groups.setdefault(length, {}).setdefault((one.name, at), []).append(one.number)
    for length, uses in groups.items():
        rows = [tuple(uses), *((use,) for use in uses if len(uses) > 1)]
        for row in rows:
            sites = tuple(sorted({n for use in row for n in uses[use]}))
            yield Mutation("constant", "reverse_constants", sites, "", length, row)


def reversible_length(array: np.ndarray) -> int | None:  # type: ignore[type-arg]
    """Return the length of the only axis of a float array that is longer than one, if it is short
    and its numbers read otherwise backwards; None otherwise."""
    if array.dtype.kind != "f" or not 1 < array.size <= MAX_CHANNELS:
        return None
    flat = array.reshape(-1)
    alone = array.size in array.shape
    return array.size if alone and not np.array_equal(flat, flat[::-1]) else None


def alias_mutations(operations: Sequence[Operation]) -> Iterator[Mutation]:
    """Yield mutations under which an operation in place changes a copy, so that nobody else sees
    it.

    The copy is made of the tensor itself, or at a call before that may hand on its argument
    unchanged (``float``, ``view``, ``to``), at all calls of the same source line.
    """
    made: Mapping[str, Operation] = {n: one for one in operations for n in one.output_names()}
    seen: set[tuple[int, ...]] = set()
    for one in operations:
        if not changes_first_argument(one):
            continue
        name = one.inputs[0] if one.inputs else ""
        for _ in range(MAX_HANDED_ON):
            source = made.get(name)
            if source is None or source.name not in ALIASES:
                break
            sites = calls_of_expression(operations, source)
            if sites not in seen:
                seen.add(sites)
                yield Mutation("operand", "unaliased", sites, source.name, "", one.name)
            name = source.inputs[0] if source.inputs else ""
        sites = calls_of_expression(operations, one)
        if sites not in seen:
            seen.add(sites)
            yield Mutation("operand", "out_of_place", sites, one.name)


def calls_of_expression(operations: Sequence[Operation], one: Operation) -> tuple[int, ...]:
    """Return the numbers of the calls with the function, source line and expression of ``one``; its
    own is among them."""
    return tuple(o.number for o in operations if (o.name, o.place) == (one.name, one.place))


def changes_first_argument(one: Operation) -> bool:
    """Return whether a call changes its first argument: ``add_``, ``+=``, ``inplace=True``, or an
    assignment to some of its elements."""
    name = one.name
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
        return True
    if one.attributes.get("inplace") is True:
        return True
    return name.startswith("__i") and name in OPERATOR_FUNCTIONS and call_number(name) is None
