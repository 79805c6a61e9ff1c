"""Mutations that insert the other side's numbers: constants, tables, low-precision results."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.explanation import Explorer
from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.gap import gap
from dualml.parity.models.operations import Operation
from dualml.parity.models.value_matching import TraceOperand

#: Low-precision types → relative distance that counts as their rounding.
LOWER = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
#: Minimum number of elements of an array: a smaller one may be representable in low precision by
#: chance.
MIN_ELEMENTS = 8
#: Maximum number of calls that are examined, counted from the first unmatched one.
MAX_NEARBY_CALLS = 8


def constant_mutations(
    explorer: Explorer,
    here: TraceOperand,
    there: TraceOperand,
    unmatched: tuple[set[str], set[str]],
) -> list[Mutation]:
    """Return mutations that replace a constant of this side, at which values first become
    unmatched, by an unmatched constant of the other side with the same shape but for axes of length
    one; then those of `table_mutations`.

    A constant is a computed value that depends on no input, parameter or buffer. Registers the
    other side's arrays with ``explorer``.

    Args:
        here, there: the operations of this side and of the other side.
        unmatched: names of the unmatched values of this side and of the other.
    """
    other: dict[str, NDArray[Any]] = {}
    for name in sorted(there.constants() & unmatched[1]):
        if not any(np.array_equal(there.arrays[name], known) for known in other.values()):
            other[name] = there.arrays[name]
    explorer.set_constants(other)
    rows, fixed = [], here.constants()
    for site in here.origins(unmatched[0]):
        name = site.output_names()[0]
        if name not in fixed or (x := here.arrays[name]).size < 2:
            continue
        alike: list[tuple[str, ...]] = [
            (n,) for n, y in other.items() if squeezed_shape(y) == squeezed_shape(x)
        ]
        if x.shape[-1] == 2:  # complex numbers: real and imaginary parts separately
            half = [n for n, y in other.items() if squeezed_shape(y) == squeezed_shape(x[..., 0])]
            alike += permutations(half, 2)
        mask = x.dtype.kind == "b" or bool(np.isinf(x).any())
        kind = "mask" if mask else "constant"
        rows += [Mutation(kind, "numbers", (site.number,), site.name, "", n) for n in alike]
    return [*rows, *table_mutations(explorer, here, there, unmatched)]


def table_mutations(
    explorer: Explorer,
    here: TraceOperand,
    there: TraceOperand,
    unmatched: tuple[set[str], set[str]],
) -> list[Mutation]:
    """Return mutations that replace a table that one of the `nearest_operations` takes by one of
    the other side with as many elements and other numbers.

    A table is an array that no operation computes: positions, indices, masks, buffers. Registers
    the other side's tables with ``explorer``. Arguments are those of `constant_mutations`.
    """
    tables = {
        name: there.values.arrays[name]
        for one in nearest_operations(there, unmatched[1])
        for name in one.inputs
        if is_table(name, there)
    }
    explorer.set_constants(tables)
    rows = []
    for site in nearest_operations(here, unmatched[0]):
        for i, name in enumerate(site.inputs):
            if not is_table(name, here):
                continue
            x = here.values.arrays[name]
            for other, y in tables.items():
                if y.size == x.size and not np.array_equal(x.ravel(), y.ravel()):
                    kind = table_kind(x, y)
                    rows.append(
                        Mutation(kind, "numbers", (site.number,), site.name, i, (other,), name)
                    )
    return rows


def nearest_operations(side: TraceOperand, unmatched: set[str]) -> list[Operation]:
    """Return the operations at which values first become unmatched, then all others with an
    unmatched output; 16 at most."""
    sites = {one.number: one for one in side.origins(unmatched)}
    sites |= {one.number: one for one in side.operations if unmatched & {*one.output_names()}}
    return list(sites.values())[: 2 * MAX_NEARBY_CALLS]


def is_table(name: str, side: TraceOperand) -> bool:
    """Return whether a value is a table (no operation computes it) that the other side does not
    share and whose numbers are known."""
    return name in side.tables and name not in side.shared and name in side.values.arrays


def table_kind(x: NDArray[Any], y: NDArray[Any]) -> str:
    """Return the kind of difference between two tables of the same size.

    ``mask`` if either is boolean or contains infinity, ``layout`` if they hold the same numbers in
    another order, else ``constant``.
    """
    if x.dtype.kind == "b" or y.dtype.kind == "b" or np.isinf(x).any() or np.isinf(y).any():
        return "mask"
    same = np.array_equal(np.sort(x.ravel()), np.sort(y.ravel()))
    return "layout" if same else "constant"


def precision_mutations(
    explorer: Explorer,
    here: TraceOperand,
    there: TraceOperand,
    unmatched: tuple[set[str], set[str]],
) -> list[Mutation]:
    """Return mutations that replace a float32 value by the other side's float16 or bfloat16 result,
    at the first unmatched operations.

    The other side's numbers are inserted, and registered with ``explorer``, because no other kernel
    repeats how a low-precision kernel rounds. Arguments are those of `constant_mutations`.
    """
    sites: dict[int, Operation] = {one.number: one for one in here.origins(unmatched[0])}
    sites |= {one.number: one for one in here.operations if unmatched[0] & {*one.output_names()}}
    rows = []
    for site in list(sites.values())[:MAX_NEARBY_CALLS]:
        x = here.arrays.get(site.output_names()[0])
        if x is None or x.dtype != np.float32 or x.size < MIN_ELEMENTS:
            continue
        for name in sorted(unmatched[1]):
            y = there.arrays[name].astype(np.float32)
            if squeezed_shape(y) != squeezed_shape(x):
                continue
            y = y.reshape(x.shape)
            kind = next(
                (k for k in LOWER if is_representable(k, y) and not is_representable(k, x)), None
            )
            if kind is not None and gap(x, y) < LOWER[kind]:
                explorer.set_constants({name: y})
                rows.append(Mutation("dtype", "numbers", (site.number,), site.name, kind, (name,)))
                break
    return rows


def is_representable(kind: str, array: NDArray[np.float32]) -> bool:
    """Return whether ``float16``, or bfloat16 for any other ``kind``, can represent all of these
    numbers exactly."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return bool((array.astype(np.float16) == array).all())
    return not (array.view(np.uint32) & 0xFFFF).any()


def squeezed_shape(array: NDArray[Any]) -> list[int]:
    """Return the lengths of the axes that are longer than one, as a list."""
    return [n for n in array.shape if n > 1]
