"""What changes no value, only how gradients flow: another norm with the same scale, a norm once
more, another operand with the same numbers."""

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
#: A value that moves no farther is the same.
NEAR = 1e-4
#: Calls behind the altered one that are made again.
CALLS = 2


def neutral(
    explorer: Prober,
    here: Side,
    around: Surroundings,
    wrong: set[str],
    late: Callable[[], bool],
) -> Iterator[Alteration]:
    """Alterations of calls through which a wrong gradient comes, the last call first.

    Args:
        wrong: parameters with another gradient.
        late: whether to end.
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
    same = True

    def visit(name: str, array: NDArray[Any]) -> bool:
        nonlocal same
        was = here.arrays.get(name)
        same = same and was is not None and gap(was, array) <= NEAR
        return same

    try:
        explorer.probe(change, CALLS, visit)
    except Exception:  # the framework refuses the alteration
        return False
    return same
