"""Judge whole runs under mutations: which are accepted as an explanation, which is simplest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace

#: Share of a difference that an explanation may leave.
REST = 0.01
#: Share of finite elements from which an array with NaNs can be compared.
NUMBERS = 0.1
#: Shares of unmatched values: a run that leaves at most NEARLY_EXPLAINED_SHARE explains nearly all;
#: one that leaves at most PARTLY_EXPLAINED_SHARE, or makes MIN_GAINED_MODULES further modules
#: agree, is no coincidence.
NEARLY_EXPLAINED_SHARE, PARTLY_EXPLAINED_SHARE, MIN_GAINED_MODULES = 0.05, 0.5, 10
#: Marks, as the old value, a factor that was fitted to a single number.
FITTED = "fitted"
#: Phases in order of causality: computed from the weights, gradients, updated weights.
GROUPS = {"parameters": 0, "forward": 0, "loss": 0, "gradient": 1, "update": 2, "state": 2}


@dataclass(frozen=True)
class MutatedRun:
    """A whole run under some mutations, with its comparison.

    Attributes:
        enough: whether at most `REST` of the difference remains anywhere. The remainder may exceed
            the rounding measured before, because Adam turns any small gradient into a full step.
    """

    changes: tuple[Mutation, ...]
    trace: Trace
    comparison: ModelComparison
    enough: bool = False

    @property
    def reach(self) -> tuple[float, float]:
        """The point up to which both sides agree, see `ModelComparison`; infinite if they are
        equal."""
        return (float("inf"), 0) if self.is_resolved else self.comparison.reach

    @property
    def is_resolved(self) -> bool:
        """Whether both sides are equal, fail in the same way, or enough of the difference is
        explained."""
        return self.enough or self.comparison.equal or self.comparison.reason == "both_raised"

    def leaves_at_most(self, share: float, now: MutatedRun) -> bool:
        """Return whether the run is resolved, or leaves at most this share of the values unmatched
        in ``now``."""
        return self.is_resolved or self.comparison.lost <= share * now.comparison.lost


def explains(now: MutatedRun, run: MutatedRun) -> bool:
    """Return whether ``run`` is still different, but leaves at most a hundredth of the difference
    anywhere, in any step.

    What remains in an array is compared with how far its own phase diverged in ``now``, because a
    smaller difference beside the explained one may have a cause of its own.
    """
    before, after = now.comparison.distances, run.comparison.distances
    worst: dict[tuple[int, str], float] = {}
    for where in now.comparison.outside:
        far = before.get(where, 0.0)
        worst[where[:2]] = max(worst.get(where[:2], 0.0), far if isfinite(far) else 0.0)
    return run.comparison.verdict == "different" and all(
        after[where] <= REST * max(before.get(where, 0.0), worst.get(where[:2], 0.0))
        for where in run.comparison.outside
    )


def has_same_nans(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether two arrays have non-finite elements in the same places and elsewhere numbers
    that are equal up to a relative distance of REST.

    False if there are too few finite numbers to tell.
    """
    there = np.isfinite(x)
    some = x.shape == y.shape and bool(np.array_equal(there, np.isfinite(y)))
    return some and bool(there.mean() > NUMBERS) and gap(x[there], y[there]) <= REST


def is_accepted(now: MutatedRun, run: MutatedRun) -> bool:
    """Return whether the last mutation of ``run`` counts as an explanation of the difference in
    ``now``.

    A resolved run always does, one whose number was fitted to the difference only then. A
    difference in computed values must leave fewer of them unmatched. One in gradients or updates
    must be gone in every update and every parameter: whatever differs afterwards must belong to a
    later phase. The first update alone is not enough, because a dampened first gradient and a wrong
    step counter look the same there.
    """
    first, then = now.comparison.first, run.comparison.first
    if run.is_resolved:
        return True
    if is_fitted(run.changes[-1]):
        return False
    if first is None or then is None or run.comparison.verdict != "different":
        return False
    same = GROUPS[first.phase] == GROUPS[then.phase]
    if GROUPS[first.phase] == 0:
        # Taking a value that both sides have makes it match, but explains nothing.
        # If a mean over everything hides an error before it, nothing was explained.
        fewer = run.comparison.lost < max(now.comparison.lost, 1)
        return fewer and (then.step == first.step or not same)
    return not same and (then.step, GROUPS[then.phase]) > (first.step, GROUPS[first.phase])


def select_explaining(now: MutatedRun, runs: Sequence[MutatedRun]) -> list[MutatedRun]:
    """Return the runs that leave at most a hundredth of the first difference of ``now``, or at most
    twice as much as the best run does."""
    first = now.comparison.first
    assert first is not None
    where = (first.step, first.phase, first.tensor)
    rests = [run.comparison.distances.get(where, 0.0) for run in runs]
    allowed = max(REST * now.comparison.distances.get(where, 0.0), 2 * min(rests))
    return [run for run, rest in zip(runs, rests, strict=True) if rest <= allowed]


def is_firm(change: Mutation) -> bool:
    """Return whether a mutation is accepted even if the two sides are not equal under it.

    Mutations that can produce arbitrary numbers are not. Inserted low-precision numbers and Dropout
    are, because they can only be verified as they are.
    """
    if change.action == "dropout" or (change.kind == "dtype" and change.action == "numbers"):
        return True
    return change.kind not in ("extra", "function", "constant", "dtype", "gradient", "optimizer")


def is_fitted(change: Mutation) -> bool:
    """Return whether the mutation's number was fitted to the difference, so that it must explain
    all of it."""
    word = str(change.argument)
    return word in ("lr_factor", "lr_schedule", "gradient:scale") or change.old == FITTED


def run_results(trace: Trace) -> dict[str, NDArray[Any]]:
    """Return the results of a run by name: loss, gradients, weights and state of every step.

    Falls back to the forward outputs if there are none.
    """
    kept = ("loss", "gradient", "update", "state")
    outputs = {n: a for n, a in trace.arrays.items() if n.partition("/")[0] in kept}
    return outputs or {n: a for n, a in trace.arrays.items() if n.startswith("forward/")}
