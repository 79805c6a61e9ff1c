"""Slices of a step around a setting: whether the other side's value brings its call's results
closer to the other side's.

The inputs of a slice come from the trace, and so do the values that its outputs are compared with:
those that the other side's module computed. Nothing else of the model is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.candidate_filter import Prober
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.stated import calls_by_module
from dualml.parity.models.gap import gap
from dualml.parity.models.operations import Operation, call_number
from dualml.parity.models.trace import Trace

#: Number of calls of a setting that are replayed, the first ones: before them the sides agree most.
MAX_SITES = 3
#: Number of calls behind the changed one that are replayed.
CALLS = 4
#: Share of a distance below which it became smaller, and above whose inverse it became larger.
CLOSER = 0.5
#: Largest relative distance of two values that belong together.
MAX_APART = 0.5
#: Settings that may change no value of the first step, only what a module keeps for later ones.
KEPT_SETTINGS = ("momentum",)
#: Largest number of settings that are tried in whole runs.
MAX_STATED = 12


def confirm_nearby(
    explorer: Prober,
    changes: Sequence[Mutation],
    a: Trace,
    b: Trace,
    pairs: Mapping[str, str],
) -> list[Mutation]:
    """Return up to MAX_STATED mutations whose slices come closer to the other side, those that come
    closest first; mutations of KEPT_SETTINGS (momentum) that bring no value closer or farther
    count, too, and come last.

    Args:
        explorer: the model, which has recorded the first step of ``a``.
        a, b: the traces of this side and of the other side.
        pairs: name of a module of the first side → its partner on the second.
    """
    theirs = calls_by_module(b.operations)
    rows: list[tuple[int, Mutation]] = []
    for change in changes:
        score = 0
        for site in change.sites[:MAX_SITES]:
            score += score_slice(explorer, change.with_sites((site,)), a, b, pairs, theirs)
        if score > 0 or (not score and change.argument in KEPT_SETTINGS):
            rows.append((-score, change))
    rows.sort(key=lambda row: row[0])
    return [change for _, change in rows[:MAX_STATED]]


def score_slice(
    explorer: Prober,
    change: Mutation,
    a: Trace,
    b: Trace,
    pairs: Mapping[str, str],
    theirs: Mapping[str, Sequence[Operation]],
) -> int:
    """Return the number of values in the slice of one mutated call that come closer to the other
    side's, less those that move away from them; 0 if the framework refuses the mutation.

    Args:
        theirs: the calls of each module of the second side.
    """
    score = 0

    def visit(name: str, after: NDArray[Any]) -> bool:
        """Compare a changed value with that of the other side's module."""
        nonlocal score
        before = a.find_array("operation", 1, name)
        number = call_number(name)
        if before is None or number is None or before.shape != after.shape:
            return True
        module = a.operations[number].module
        partner = nearest_value(before, b, theirs.get(pairs.get(module, module), ()))
        if partner is not None:
            near, far = gap(before, partner), gap(after, partner)
            score += (far < CLOSER * near) - (near < CLOSER * far)
        return True

    try:
        explorer.probe(change, CALLS, visit)
    except Exception:  # the framework refuses the mutation
        return 0
    return score


def nearest_value(array: NDArray[Any], b: Trace, calls: Sequence[Operation]) -> NDArray[Any] | None:
    """Return the output of these calls that lies nearest to an array, in its shape; None if none
    has as many elements or lies within MAX_APART."""
    best, least = None, MAX_APART
    for one in calls:
        for name, shape in zip(one.output_names(), one.outputs, strict=True):
            if int(np.prod(shape)) != array.size:
                continue
            other = b.find_array("operation", 1, name)
            if other is None or other.dtype.kind != array.dtype.kind:
                continue
            other = other.reshape(array.shape)
            if (far := gap(array, other)) < least:
                best, least = other, far
    return best
