"""Enumerate mutations that change no value, only how gradients flow.

Examples are another norm with the same scale, a repeated norm, another operand with the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from dualml.parity.causes.candidate_filter import Prober
from dualml.parity.causes.context import ContextBuilder
from dualml.parity.causes.gradients import parameter_names, value_ancestors
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.mutations import candidate_mutations
from dualml.parity.models.gap import gap
from dualml.parity.models.value_matching import TraceOperand

KINDS = ("operand", "extra", "missing", "order", "function")
#: Relative distance up to which a value counts as unchanged.
UNCHANGED_RTOL = 1e-4
#: Number of calls behind the changed one that are replayed.
CALLS = 2


def gradient_only_mutations(
    explorer: Prober,
    here: TraceOperand,
    context: ContextBuilder,
    wrong: set[str],
    is_late: Callable[[], bool],
) -> Iterator[Mutation]:
    """Yield mutations that keep all values (`is_value_preserving`), of calls that a wrong gradient
    flows through, the last call first, until ``is_late``.

    Args:
        wrong: names of parameters whose gradients differ.
        is_late: returns whether the time is up.
    """
    before = value_ancestors(here.operations)
    for one in reversed(here.operations):
        if not wrong & parameter_names(before[one.number]):
            continue
        known = context.build_context(one, ())
        for change in candidate_mutations(
            one, [known.shapes.get(n, ()) for n in one.inputs], known
        ):
            if is_late():
                return
            if change.kind in KINDS and is_value_preserving(explorer, change, here):
                yield change


def is_value_preserving(explorer: Prober, change: Mutation, here: TraceOperand) -> bool:
    """Return whether a mutation leaves the outputs of its call and of the next two that depend on
    it unchanged, up to UNCHANGED_RTOL; False if the framework refuses it."""
    same = True

    def visit(name: str, array: NDArray[Any]) -> bool:
        """Compare an output with its recorded value."""
        nonlocal same
        was = here.arrays.get(name)
        same = same and was is not None and gap(was, array) <= UNCHANGED_RTOL
        return same

    try:
        explorer.probe(change, CALLS, visit)
    except Exception:  # the framework refuses the mutation
        return False
    return same
