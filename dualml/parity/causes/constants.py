"""Where both sides begin to compute with constants and come to other ones: the other side's."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.explanation import Explorer
from dualml.parity.models.flow import Side


def of_constants(
    explorer: Explorer, here: Side, there: Side, lost: tuple[set[str], set[str]]
) -> list[Alteration]:
    """The other side's numbers, given to ``explorer``, at each call that lost its own."""
    other: dict[str, NDArray[Any]] = {}
    for name in sorted(there.fixed() & lost[1]):
        if not any(np.array_equal(there.arrays[name], known) for known in other.values()):
            other[name] = there.arrays[name]
    explorer.numbers(other)
    rows, fixed = [], here.fixed()
    for site in here.origins(lost[0]):
        name = site.names()[0]
        if name not in fixed or (x := here.arrays[name]).size < 2:
            continue
        alike: list[tuple[str, ...]] = [
            (n,) for n, y in other.items() if squeezed(y) == squeezed(x)
        ]
        if x.shape[-1] == 2:  # complex numbers: real and imaginary parts apart
            half = [n for n, y in other.items() if squeezed(y) == squeezed(x[..., 0])]
            alike += permutations(half, 2)
        mask = x.dtype.kind == "b" or bool(np.isinf(x).any())
        kind = "mask" if mask else "constant"
        rows += [Alteration(kind, "numbers", (site.number,), site.name, "", n) for n in alike]
    return rows


def squeezed(array: NDArray[Any]) -> list[int]:
    return [n for n in array.shape if n > 1]
