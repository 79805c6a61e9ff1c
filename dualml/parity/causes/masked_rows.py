"""Enumerate mutations of rows of a softmax that are masked as a whole.

PyTorch's fused attention gives zeros there. A port without it computes a mean with equal weights if
it writes a large negative number into masked scores; if it adds one, the scores also get a gradient
through such a row, and with a small enough number keep their differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dualml.parity.causes.context import numeric_constants
from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.value_matching import TraceOperand

#: Results that a row gets, whatever its scores are.
RESULTS = ("uniform", "zero", "nan")
#: Numbers that ports add to masked scores: the smallest of float32, and rounder ones.
ADDED = (float(np.finfo(np.float32).min), -1e9, -1e4)
#: Largest number that counts as one that masks.
MASKING = -100.0
#: Functions that mask scores.
MASKS = ("masked_fill", "where", "add", "__add__")
#: Words in the names of functions that put a number in the place of masked scores.
FILLS = ("fill", "where", "select")
#: Number of masks on the way to a softmax.
MAX_MASKS = 4


def added_numbers(others: Iterable[Operation]) -> list[float]:
    """Return the numbers, −100 at most, that the other side may add to masked scores: those that
    its calls state, then the usual ones (`ADDED`). Numbers with which calls fill scores do not
    count; if there are such calls, the usual ones are left out."""
    stated: dict[float, None] = {}
    fills = False
    for one in others:
        numbers = [n for n in numeric_constants(one.attributes) if -np.inf < n <= MASKING]
        if any(word in one.name.lower() for word in FILLS):
            fills = fills or bool(numbers)
        else:
            stated |= dict.fromkeys(numbers)
    return [*stated, *(n for n in ADDED if n not in stated and not fills)]


def masked_row_mutations(here: TraceOperand, added: Sequence[float] = ()) -> Iterator[Mutation]:
    """Yield mutations that give the rows of a softmax that are masked as a whole another result:
    equal weights, zeros, NaN, or the softmax of scores to which a number is added where they are
    masked. What follows and fills such rows, as fused attention does, is left out.

    Args:
        added: numbers that the other side may add, see `added_numbers`.
    """
    sites: list[int] = []
    masks: list[int] = []
    for one in here.operations:
        if one.name != "softmax" or not has_masked_row(here, one):
            continue
        sites.append(one.number)
        takers = here.consumers.get(one.output_names()[0], ())
        sites += [n for n in takers if here.operations[n].name == "masked_fill"]
        masks += find_masks(here, one)
    if not sites:
        return
    for result in RESULTS:
        yield Mutation("mask", "masked_rows", tuple(sites), "", "", result)
    every = tuple(sorted({*sites, *masks}))
    for number in added if masks else ():
        yield Mutation("mask", "masked_rows", every, "", "added", number)


def find_masks(here: TraceOperand, softmax: Operation) -> Iterator[int]:
    """Yield the numbers of the calls that put minus infinity into the scores of a softmax, from the
    softmax back to the first call that is no mask, at most MAX_MASKS."""
    name = softmax.inputs[0]
    for _ in range(MAX_MASKS):
        number = call_number(name)
        if number is None or name not in here.arrays:
            return
        call = here.operations[number]
        if call.name not in MASKS or not np.isneginf(here.arrays[name]).any():
            return
        yield number
        # Of `where` the scores come behind the condition.
        scores = [n for n in call.inputs if n in here.arrays and is_scores(here, n)]
        if not scores:
            return
        name = scores[0]


def is_scores(here: TraceOperand, name: str) -> bool:
    """Return whether a value is computed and has floating-point numbers."""
    return call_number(name) is not None and here.arrays[name].dtype.kind == "f"


def has_masked_row(here: TraceOperand, softmax: Operation) -> bool:
    """Return whether all scores of some row of a softmax are minus infinity."""
    if not softmax.inputs or softmax.inputs[0] not in here.arrays:
        return False
    scores = here.arrays[softmax.inputs[0]]
    axis = softmax.attributes.get("dim", -1)
    if not isinstance(axis, int) or scores.dtype.kind != "f" or not -scores.ndim <= axis:
        return False
    return bool(np.isneginf(scores).all(axis).any()) if axis < scores.ndim else False
