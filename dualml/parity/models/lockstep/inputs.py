"""Pair the input tensors of a block on both sides by their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.places import FLOOR

#: Two tensors are the same up to rounding if they lie no further apart, in units in the last place.
SAME_INPUT_UNITS = 10


def match_inputs(
    arrays: Mapping[int, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    numbers: Sequence[int],
    unit: float = FLOOR,
) -> tuple[dict[int, int], tuple[int, int] | None]:
    """Return which floating-point inputs of a block get the numbers of which of the first side's.

    These are inputs with the same numbers up to rounding, at the same place first. The first input
    is the activation: if no other has its numbers, it is paired with the first one that is left,
    whose shape must be the same. All other inputs (a mask, a table of positions) may be computed in
    another way on each side, and are kept: what they do shows in the output.

    Args:
        arrays: number of an input → array.
        given: ``input/NUMBER`` → array of the first side.
        numbers: numbers of the first side's floating-point inputs.
        unit: one unit in the last place, relative.

    Returns:
        Number of an input → number on the first side; and (number of the first input, number on the
            first side) if the numbers in the first input differ from its partner's, else None.
    """
    left, matched = list(numbers), {}
    for i, array in arrays.items():
        for source in sorted(left, key=lambda at: at != i):
            other = given[f"input/{source}"]
            if other.shape == array.shape and gap(other, array) <= SAME_INPUT_UNITS * unit:
                matched[i] = source
                left.remove(source)
                break
    first = next(iter(arrays), None)
    if first is None or first in matched or not left:
        return matched, None
    if given[f"input/{left[0]}"].shape == arrays[first].shape:
        matched[first] = left[0]
    return matched, (first, left[0])
