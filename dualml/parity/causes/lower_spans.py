"""Enumerate mutations that compute several calls in sequence in low precision.

A table of angles that was cast to float16, or a block under autocast, rounds in every call. The
rounding of one call alone reproduces nothing that follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.spans import is_inplace_name
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation
from dualml.parity.models.value_matching import TraceOperand

#: Smallest number of elements of an array that shows its precision.
MIN_ELEMENTS = 8
#: Number of calls of which the precision is examined, and of functions that a sentence names.
MAX_CALLS, MAX_NAMES = 60, 4


def lower_span_mutations(here: TraceOperand, there: TraceOperand) -> Iterator[Mutation]:
    """Yield mutations under which all calls of a sequence compute in the other side's low
    precision.

    The sequences are those of two or more calls whose values are not shared: constants, such as
    tables of positions, and data. Of each first the calls whose function has low-precision results
    on the other side, then all from some call on; of data also those in the module of the first.
    Nothing is yielded if the other side's unmatched values have no precision that this side lacks,
    or if one of these calls works in place.
    """
    kinds, functions = low_precisions(there)
    kinds -= low_precisions(here)[0]
    lost, fixed = here.unmatched(), here.constants()
    changed = [one for one in here.operations if lost & {*one.output_names()}]
    if not kinds or any(is_inplace_name(one.name) for one in changed):
        return
    tables = [one for one in changed if fixed & {*one.output_names()}]
    data = [one for one in changed if one not in tables]
    rows = [[one for one in some if plain_name(one) in functions] for some in (tables, data)]
    rows += [tables[at:] for at in range(len(tables))]
    rows += [[one for one in data if one.module == data[0].module], data, changed]
    for sites in dict.fromkeys(tuple(one.number for one in row) for row in rows if len(row) > 1):
        label = name_functions([here.operations[n] for n in sites])
        for kind in sorted(kinds):
            yield Mutation("dtype", "lower_span", sites, "", label, kind)


def plain_name(one: Operation) -> str:
    """Return the name of a call's function without underscores, in lower case, as both frameworks
    have it: ``__mul__`` and ``Mul`` are ``mul``."""
    name = OPERATOR_FUNCTIONS.get(one.name, one.name)
    return name.strip("_").lower().removesuffix("ext")


def low_precisions(side: TraceOperand) -> tuple[set[str], set[str]]:
    """Return the low-precision types (``float16``, ``bfloat16``) of a side's unmatched values, and
    the functions that have such results, by their `plain_name`: recorded as float16, or as float32
    with the digits of bfloat16 alone. Only the first MAX_CALLS unmatched calls count."""
    kinds, functions = set(), set()
    lost = side.unmatched()
    calls = [one for one in side.operations if one.output_names()[0] in lost]
    for one in calls[:MAX_CALLS]:
        array = side.arrays[one.output_names()[0]]
        if array.dtype == np.float16 and array.size > 1:
            kinds.add("float16")
        elif array.dtype == np.float32 and array.size >= MIN_ELEMENTS and is_bfloat16(array):
            kinds.add("bfloat16")
        else:
            continue
        functions.add(plain_name(one))
    return kinds, functions


def is_bfloat16(array: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Return whether bfloat16 represents all numbers of a float32 array exactly, and most of them
    are no integers."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    return not (bits & 0xFFFF).any() and bool((array != np.round(array)).mean() > 1 / 2)


def name_functions(calls: Sequence[Operation]) -> str:
    """Return the names of the functions of some calls as a text, in their order, each once: up to
    MAX_NAMES in backticks, then ``…`` if there are more."""
    names = list(dict.fromkeys(map(plain_name, calls)))
    more = ["…"] if len(names) > MAX_NAMES else []
    return ", ".join([*(f"`{name}`" for name in names[:MAX_NAMES]), *more])
