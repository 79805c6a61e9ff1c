"""Enumerate mutations that add a further value to an operand, as a bias of positions that belongs
to other scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np

from dualml.parity.causes.mutation import Mutation, Shape
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.gap import gap
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.value_matching import TraceOperand

#: Words in the names of functions that look rows up, and that only rearrange.
LOOKUPS = ("gather", "embedding", "index_select")
MOVES = ("transpose", "permute", "swapaxes", "reshape", "view", "expanddims", "unsqueeze", "cast")
#: Number of first calls whose operands get an addend, and of addends.
MAX_SITES, MAX_ADDENDS = 3, 4
#: Relative distance of a looked-up value from the rows of its table.
LOOKUP_RTOL = 1e-6
#: Largest number of calls between a lookup and the addition of its rows.
MAX_MOVES = 4

#: The other side's indices of rows of a table, and an order of axes.
Rows = tuple[str, tuple[int, ...]]
#: A value of this side, and which of its rows are meant; None: the value itself.
Addend = tuple[str, Rows | None]


def added_value_mutations(
    here: TraceOperand, there: TraceOperand, names: Mapping[str, str]
) -> Iterator[Mutation]:
    """Yield mutations that add a further value to a float operand, no parameter, of one of the
    first MAX_SITES calls whose results are not shared (`TraceOperand.unmatched`).

    The values are the first MAX_ADDENDS that the other side adds somewhere, see `find_addends`:
    values and parameters of this side, or rows of its parameters. Each mutation is yielded for the
    call alone, then for all calls of its source line in modules of the same last name.

    Args:
        here, there: the operations of this side, which is mutated, and of the other side.
        names: the other side's parameters → this side's, both with the prefix ``parameter:``.
    """
    lost = here.unmatched()
    addends = list(dict.fromkeys(find_addends(there, {**there.shared, **names})))[:MAX_ADDENDS]
    if not addends:
        return
    moving = [one for one in here.origins(lost) if one.inputs][:MAX_SITES]
    for site in moving:
        for at, name in enumerate(site.inputs):
            if name.startswith("parameter:") or name not in here.arrays:
                continue
            x = here.arrays[name]
            for value, looked_up in addends:
                shape = addend_shape(here, there, value, looked_up)
                if x.dtype.kind != "f" or shape is None or not is_broadcastable(shape, x.shape):
                    continue
                number = call_number(value)  # None for an input of the model
                if (number is not None and number >= site.number) or value in site.inputs:
                    continue
                change = Mutation(
                    "extra", "addend", (site.number,), site.name, at, value, looked_up
                )
                for sites in dict.fromkeys(
                    (change.sites, calls_of_line_in_like_modules(here.operations, site))
                ):
                    yield change.with_sites(sites)


def find_addends(there: TraceOperand, shared: Mapping[str, str]) -> Iterator[Addend]:
    """Yield what the other side adds in calls whose results this side lacks: (value, None) for a
    value of this side, or (parameter, (indices, order)) for rows of a parameter of this side, which
    a value of the other side selects, with their axes in an order.

    Args:
        there: the operations of the other side.
        shared: name of a value of the other side → its name on this side.
    """
    lost = there.unmatched()
    made = {name: one for one in there.operations for name in one.output_names()}
    for one in there.operations:
        plain = OPERATOR_FUNCTIONS.get(one.name, one.name).lower().removesuffix("ext")
        if plain != "add" or lost.isdisjoint(one.output_names()):
            continue
        for name in one.inputs:
            if name in shared and not shared[name].startswith("input:"):
                yield shared[name], None
            elif (found := find_lookup(there, made.get(name), shared)) is not None:
                yield from looked_up_rows(there, found, there.arrays[name], shared)


def find_lookup(
    there: TraceOperand, one: Operation | None, shared: Mapping[str, str]
) -> Operation | None:
    """Return the call that looks rows of a shared parameter up (embedding, gather): ``one`` itself,
    or an earlier call whose result is only rearranged up to ``one``. None if there is none among
    the MAX_MOVES nearest calls.

    Args:
        there: the operations of the other side.
        shared: name of a value of the other side → its name on this side.
    """
    for _ in range(MAX_MOVES):
        if one is None:
            return None
        name = one.name.lower()
        table = one.inputs[0] if one.inputs else ""
        if any(word in name for word in LOOKUPS):
            return one if any(is_shared_table(n, shared) for n in one.inputs) else None
        if not any(word in name for word in MOVES):
            return None
        number = call_number(table)
        one = None if number is None else there.operations[number]
    return None


def is_shared_table(name: str, shared: Mapping[str, str]) -> bool:
    """Return whether a value of the other side is a parameter that has a partner on this side, that
    is, a name in ``shared``."""
    return name.startswith("parameter:") and name in shared


def looked_up_rows(
    there: TraceOperand,
    lookup: Operation,
    wanted: np.ndarray,  # type: ignore[type-arg]
    shared: Mapping[str, str],
) -> Iterator[Addend]:
    """Yield at most one addend: the looked-up parameter under this side's name, with the name of
    the indices and the order of axes that turn its rows into ``wanted``; nothing if no order does.

    Args:
        lookup: a call of the other side, see `find_lookup`.
        wanted: the array that the other side adds.
        shared: name of a value of the other side → its name on this side.
    """
    tables = [name for name in lookup.inputs if is_shared_table(name, shared)]
    for name in [n for one in lookup.inputs for n in before_reshape(there, one)]:
        indices = there.arrays.get(name, there.values.arrays.get(name))
        table = there.values.arrays.get(tables[0])
        if name in tables or indices is None or table is None or indices.dtype.kind != "i":
            continue
        if table.ndim != 2 or not indices.size:
            continue
        if indices.min() < 0 or indices.max() >= len(table):
            continue
        rows = table[indices]
        for order in permutations(range(rows.ndim)):
            made = rows.transpose(order)
            leading = wanted.size == made.size and wanted.shape[-made.ndim :] == made.shape
            if leading and gap(made.ravel(), wanted.ravel()) <= LOOKUP_RTOL:
                yield shared[tables[0]], (name, order)
                return


def before_reshape(there: TraceOperand, name: str) -> list[str]:
    """Return a list of the value's name and, if a reshape made the value, the name of what was
    reshaped."""
    number = call_number(name)
    one = None if number is None else there.operations[number]
    return [name, *one.inputs[:1]] if one is not None and "reshape" in one.name.lower() else [name]


def addend_shape(
    here: TraceOperand,
    there: TraceOperand,
    value: str,
    looked_up: Rows | None,
) -> Shape | None:
    """Return the shape of an addend, see `find_addends`; None if it is unknown.

    Args:
        value: name of a value of this side.
        looked_up: the other side's indices and the order of axes, if rows of the value are meant.
    """
    array = here.arrays.get(value, here.values.arrays.get(value))
    if array is None or looked_up is None:
        return None if array is None else array.shape
    name, order = looked_up
    indices = there.arrays.get(name, there.values.arrays.get(name))
    shape = () if indices is None else (*indices.shape, array.shape[-1])
    return tuple(shape[i] for i in order) if shape else None


def is_broadcastable(shape: Shape, other: Shape) -> bool:
    """Return whether an array of ``shape`` can be added to one of shape ``other`` without changing
    the latter's shape; False for a scalar."""
    if not shape or len(shape) > len(other):
        return False
    return all(m in (1, n) for m, n in zip(reversed(shape), reversed(other), strict=False))


def calls_of_line_in_like_modules(
    operations: Sequence[Operation], site: Operation
) -> tuple[int, ...]:
    """Return the numbers of the calls with the function, source line and expression of ``site``, in
    modules of the same last name; its own is among them."""
    last = site.module.rpartition(".")[2]
    return tuple(
        one.number
        for one in operations
        if (one.name, one.place) == (site.name, site.place)
        and one.module.rpartition(".")[2] == last
    )
