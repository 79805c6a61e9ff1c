"""Prepare an accepted mutation for its report: its kind, and the calls whose output it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.candidate_filter import Prober
from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace

#: Maximum number of calls that are tested one by one.
MAX_TESTED_CALLS = 64
#: Relative distance up to which an output counts as unchanged, as after a change of kernel.
UNCHANGED_RTOL = 1e-6


def restrict_to_active_sites(explorer: Prober, change: Mutation, trace: Trace) -> Mutation:
    """Return the mutation restricted to those of its calls whose output it changes, see
    `has_effect`.

    If it changes none, it is returned as it is, because it may affect gradients only; so are
    mutations of a single call, of none, or of more than MAX_TESTED_CALLS. For example, 'same'
    padding at all convolutions becomes that of the one with stride two.

    Args:
        explorer: the model, which has recorded the calls of ``trace``.
        trace: the run without this mutation.
    """
    if not 1 < len(change.sites) <= MAX_TESTED_CALLS:
        return change
    sites = [
        site for site in change.sites if has_effect(explorer, change.with_sites([site]), trace)
    ]
    return change.with_sites(sites or change.sites)


def has_effect(explorer: Prober, change: Mutation, trace: Trace) -> bool:
    """Return whether a mutation changes an output of its call by a relative distance above
    UNCHANGED_RTOL; True if an output was not recorded in ``trace``, or if the framework refuses the
    mutation."""
    same = True

    def visit(name: str, array: NDArray[Any]) -> bool:  # called if not bitwise equal
        """Compare an output that is not bitwise the same with its recorded value."""
        nonlocal same
        was = trace.find_array("operation", 1, name)
        same = was is not None and gap(was, array) <= UNCHANGED_RTOL
        return same

    try:
        explorer.probe(change, 0, visit)
    except Exception:
        return True
    return not same


def mark_mask(change: Mutation, trace: Trace) -> Mutation:
    """Return a mutation with kind ``mask`` if it inverts an input or output (transforms
    ``one_minus`` and ``invert``) that is an array of zeros and ones in the trace; others
    unchanged."""
    transform = change.value[0] if isinstance(change.value, tuple) else ""
    if transform not in ("one_minus", "invert") or change.action not in ("input", "output"):
        return change
    site = trace.operations[change.sites[0]]
    outputs = change.action == "output"
    name = site.output_names()[0] if outputs else site.inputs[int(change.argument)]
    array = trace.find_array("operation", 1, name)
    ones = array is not None and array.size > 1 and bool(np.isin(array, (0, 1)).all())
    return replace(change, kind="mask") if ones else change
