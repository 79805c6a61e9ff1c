"""Whole runs of a model under mutations, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays, select_arrays
from dualml.parity.causes.assessment import REST, AssessmentRecord
from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace, hash_arrays

#: Share of finite elements from which an array with NaNs can be compared.
NUMBERS = 0.1


@dataclass(frozen=True)
class MutatedRun:
    """A whole run under some mutations, with its comparison with the other side."""

    changes: tuple[Mutation, ...]
    trace: Trace
    comparison: ModelComparison


def assess_run(now: MutatedRun | None, run: MutatedRun, enough: bool) -> AssessmentRecord:
    """Return what a run shows, without a prior.

    Args:
        now: the run without the last mutation; None if there is none.
        enough: whether at most `REST` of the difference remains anywhere.
    """
    found, before = run.comparison, None if now is None else now.comparison
    first, begun = found.first, None if before is None else before.first
    shown = AssessmentRecord(
        run.changes,
        found.verdict,
        found.reason,
        found.steps,
        found.reach,
        found.lost,
        found.worst,
        enough=enough,
        run=run,
    )
    values: dict[str, Any] = {}
    if first is not None:
        where = first.step, first.phase, first.tensor
        values |= {"step": first.step, "phase": first.phase, "kind": first.kind}
        values["distance"] = found.distances.get(where, 0.0)
    if before is not None and begun is not None:
        where = begun.step, begun.phase, begun.tensor
        values["left"] = found.distances.get(where, 0.0)
        if shown.reach > before.reach:
            values["results"] = hash_arrays(run_results(run.trace))
    return AssessmentRecord(**{**vars(shown), **values})


def explains(now: ModelComparison, run: ModelComparison) -> bool:
    """Return whether ``run`` is still different, but leaves at most a hundredth of the difference
    anywhere, in any step.

    What remains in an array is compared with how far its own phase diverged in ``now``, because a
    smaller difference beside the explained one may have a cause of its own.
    """
    before, after = now.distances, run.distances
    worst: dict[tuple[int, str], float] = {}
    for where in now.outside:
        far = before.get(where, 0.0)
        worst[where[:2]] = max(worst.get(where[:2], 0.0), far if isfinite(far) else 0.0)
    return run.verdict == "different" and all(
        after[where] <= REST * max(before.get(where, 0.0), worst.get(where[:2], 0.0))
        for where in run.outside
    )


def has_same_nans(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether two arrays have non-finite elements in the same places and elsewhere numbers
    that are equal up to a relative distance of REST.

    False if there are too few finite numbers to tell.
    """
    there = np.isfinite(x)
    some = x.shape == y.shape and bool(np.array_equal(there, np.isfinite(y)))
    return some and bool(there.mean() > NUMBERS) and gap(x[there], y[there]) <= REST


def ends_in_same_nans(comparison: ModelComparison, a: Trace, b: Trace) -> bool:
    """Return whether both sides first diverge in an array that has NaNs on both, in the same
    places, and agrees elsewhere, see `has_same_nans`."""
    first = comparison.first
    if comparison.reason != "both_nan" or first is None:
        return False
    where = first.phase, first.step
    x, y = a.find_array(*where, first.tensor), b.find_array(*where, first.other)
    return x is not None and y is not None and has_same_nans(x, y)


def run_results(trace: Trace) -> LazyArrays:
    """Return the results of a run by name: loss, gradients, weights and state of every step.

    Falls back to the forward outputs if there are none.
    """
    kept = ("loss", "gradient", "update", "state")
    names = [n for n in trace.arrays if n.partition("/")[0] in kept]
    return select_arrays(
        trace.arrays, names or [n for n in trace.arrays if n.startswith("forward/")]
    )
