"""Enumerate mutations that change no value, only how gradients flow.

Examples are another norm with the same scale, a repeated norm, another operand with the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.alterations import alterations
from dualml.parity.causes.gradients import ancestors, parameters
from dualml.parity.causes.screen import Prober
from dualml.parity.causes.surroundings import Surroundings
from dualml.parity.models.flow import Side
from dualml.parity.models.gap import gap

KINDS = ("operand", "extra", "missing", "order", "function")
#: Relative distance up to which a value counts as unchanged.
NEAR = 1e-4
#: Number of calls behind the changed one that are replayed.
CALLS = 2


def neutral(
    explorer: Prober,
    here: Side,
    around: Surroundings,
    wrong: set[str],
    late: Callable[[], bool],
) -> Iterator[Alteration]:
    """Yield value-preserving mutations of calls that a wrong gradient flows through, the last call
    first.

    Args:
        wrong: names of parameters whose gradients differ.
        is_late: whether the time is up.
    """
    before = ancestors(here.operations)
    for one in reversed(here.operations):
        if not wrong & parameters(before[one.number]):
            continue
        known = around.of(one, ())
        for change in alterations(one, [known.shapes.get(n, ()) for n in one.inputs], known):
            if late():
                return
            if change.kind in KINDS and unchanged(explorer, change, here):
                yield change


def unchanged(explorer: Prober, change: Alteration, here: Side) -> bool:
    """Whether a mutation leaves all values unchanged; False if the framework refuses it."""
    same = True

    def visit(name: str, array: NDArray[Any]) -> bool:
        """Compare an output with its recorded value."""
        nonlocal same
        was = here.arrays.get(name)
        same = same and was is not None and gap(was, array) <= NEAR
        return same

    try:
        explorer.probe(change, CALLS, visit)
    except Exception:  # the framework refuses the mutation
        return False
    return same
