"""Of the calls at which an alteration was tried together, those where it changes something."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.screen import Prober
from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace

#: More calls are not looked at one by one.
MOST = 64
#: Another kernel for the same numbers is no change.
SAME = 1e-6


def effective(explorer: Prober, change: Alteration, trace: Trace) -> Alteration:
    """The same at the calls whose output it changes; as it is where it changes none, as what only
    gradients see.

    'same' padding at all convolutions is that of the one that moves by two.
    """
    if not 1 < len(change.sites) <= MOST:
        return change
    sites = [site for site in change.sites if changes(explorer, change.at([site]), trace)]
    return change.at(sites or change.sites)


def changes(explorer: Prober, change: Alteration, trace: Trace) -> bool:
    """Whether its call gives something else; what is not known or refused counts as a change."""
    same = True

    def visit(name: str, array: NDArray[Any]) -> bool:  # of what is not bit for bit the same
        nonlocal same
        was = trace.get("operation", 1, name)
        same = was is not None and gap(was, array) <= SAME
        return same

    try:
        explorer.probe(change, 0, visit)
    except Exception:
        return True
    return not same
