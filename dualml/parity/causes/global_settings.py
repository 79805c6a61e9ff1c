"""Mutations of one setting in all calls of a function.

In a single call the difference may be mere rounding, and only their sum is visible.
"""

from __future__ import annotations

from dualml.parity.causes.context import epsilon_values
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.tables import WORDS
from dualml.parity.models.trace import Trace


def global_mutations(a: Trace, b: Trace) -> list[Mutation]:
    """Return mutations of the side ``a``, each of one setting in all calls of a function that have
    the same value for it: an epsilon takes each of trace ``b``'s, GELU's ``approximate`` its other
    words."""
    groups: dict[tuple[str, str, object], list[int]] = {}
    for one in a.operations:
        for name, value in one.attributes.items():
            if "eps" in name or name == "approximate":
                groups.setdefault((one.name, name, value), []).append(one.number)
    return [
        Mutation("attribute", "set", tuple(sites), name, argument, value, old)
        for (name, argument, old), sites in groups.items()
        for value in WORDS.get(argument, epsilon_values(b.operations))
        if value != old
    ]
