"""Whole runs under alterations: which are believed, and which is the simplest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.comparison import Comparison
from dualml.parity.models.gap import gap
from dualml.parity.models.trace import Trace

#: Of a difference, what an explanation may leave.
REST = 0.01
#: Of an array with NaNs, how much are numbers that tell whether it is the other side's.
NUMBERS = 0.1
#: Of the lost values, what leaves so few explains nearly all; what leaves half of them, or fewer,
#: is no chance; nor is that so many further modules agree.
ALMOST, SHARED, GAINED = 0.05, 0.5, 10
#: In the place of an old value: one number that was made to turn a lone number into the other's.
FITTED = "fitted"
#: What is computed from the weights, and what becomes of them.
GROUPS = {"parameters": 0, "forward": 0, "loss": 0, "gradient": 1, "update": 2, "state": 2}


@dataclass(frozen=True)
class Run:
    """A whole run under some alterations, judged.

    Attributes:
        enough: whether nowhere more than `REST` of the difference is left. What is left may be
            outside of the rounding measured before: Adam makes a step of any small gradient.
    """

    changes: tuple[Alteration, ...]
    trace: Trace
    comparison: Comparison
    enough: bool = False

    @property
    def reach(self) -> tuple[float, float]:
        """How far both sides go together; infinite for equal ones."""
        return (float("inf"), 0) if self.alike else self.comparison.reach

    @property
    def alike(self) -> bool:
        """Equal, or the same failure on both sides, or enough of the difference explained."""
        return self.enough or self.comparison.equal or self.comparison.reason == "both_raised"

    def leaves(self, share: float, now: Run) -> bool:
        """Whether both sides are alike, or at most a share of what was lost before still is."""
        return self.alike or self.comparison.lost <= share * now.comparison.lost


def explains(now: Run, run: Run) -> bool:
    """Whether nowhere more than a hundredth of the difference is left, in any step.

    What is left in an array is set against how far its own phase was apart: a smaller difference
    beside the one that is explained may have a cause of its own.
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


def same_gaps(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Whether two arrays have their NaNs in the same places, and the same numbers in the others;
    of no numbers at all nothing can be said."""
    there = np.isfinite(x)
    some = x.shape == y.shape and bool(np.array_equal(there, np.isfinite(y)))
    return some and bool(there.mean() > NUMBERS) and gap(x[there], y[there]) <= REST


def believed(now: Run, run: Run) -> bool:
    """Whether an alteration explains its place whole: in every update, in every parameter.

    The first update alone is not enough: a dampened first gradient and a wrong step counter look
    alike there. What differs afterwards may only be something else.
    """
    first, then = now.comparison.first, run.comparison.first
    if run.alike:
        return True
    if fitted(run.changes[-1]):
        return False
    if first is None or then is None or run.comparison.verdict != "different":
        return False
    same = GROUPS[first.phase] == GROUPS[then.phase]
    if GROUPS[first.phase] == 0:
        # What takes a value that both sides have is no longer lost, and explains nothing.
        # Where a mean over all hides what was wrong before it, nothing was.
        fewer = run.comparison.lost < max(now.comparison.lost, 1)
        return fewer and (then.step == first.step or not same)
    return not same and (then.step, GROUPS[then.phase]) > (first.step, GROUPS[first.phase])


def explaining(now: Run, runs: Sequence[Run]) -> list[Run]:
    """Those that leave at most a hundredth of the difference, or as little as the best does."""
    first = now.comparison.first
    assert first is not None
    where = (first.step, first.phase, first.tensor)
    rests = [run.comparison.distances.get(where, 0.0) for run in runs]
    allowed = max(REST * now.comparison.distances.get(where, 0.0), 2 * min(rests))
    return [run for run, rest in zip(runs, rests, strict=True) if rest <= allowed]


def firm(change: Alteration) -> bool:
    """Whether an alteration is believed where the two sides are not equal with it: one that can do
    anything to the numbers is not; numbers of less precision, and what chance drops, are found as
    they stand."""
    if change.action == "dropout" or (change.kind == "dtype" and change.action == "numbers"):
        return True
    return change.kind not in ("extra", "function", "constant", "dtype", "gradient", "optimizer")


def fitted(change: Alteration) -> bool:
    """Whether its number was made from the difference itself: it has to explain all of it."""
    word = str(change.argument)
    return word in ("lr_factor", "lr_schedule", "gradient:scale") or change.old == FITTED


def computed(trace: Trace) -> dict[str, NDArray[Any]]:
    """What a run comes to: loss, gradients and weights of every step."""
    kept = ("loss", "gradient", "update", "state")
    outputs = {n: a for n, a in trace.arrays.items() if n.partition("/")[0] in kept}
    return outputs or {n: a for n, a in trace.arrays.items() if n.startswith("forward/")}
