"""Record of a whole run under mutations: the numbers from which a search decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dualml.parity.causes.mutation import Mutation

#: Share of a difference that an explanation may leave.
REST = 0.01
#: Shares of unmatched values: a run that leaves at most NEARLY_EXPLAINED_SHARE explains nearly all;
#: one that leaves at most PARTLY_EXPLAINED_SHARE, or makes MIN_GAINED_MODULES further modules
#: agree, is no coincidence.
NEARLY_EXPLAINED_SHARE, PARTLY_EXPLAINED_SHARE, MIN_GAINED_MODULES = 0.05, 0.5, 10
#: Marks, as the old value, a factor that was fitted to a single number.
FITTED = "fitted"
#: Phases in order of causality: computed from the weights, gradients, updated weights.
GROUPS = {"parameters": 0, "forward": 0, "loss": 0, "gradient": 1, "update": 2, "state": 2}


@dataclass(frozen=True)
class Prior:
    """The likelihood of a mutation before it is tried, see `dualml.parity.causes.ranking_key`.

    Attributes:
        foreign: whether it brings in a function that the other side never calls.
        rank: position of its kind, the likeliest first.
        stated: whether its number occurs in the other side's call; 0, 1 and −1 do not count.
        rarer: whether the other side calls the mutated function less often.
        known: whether it is a known mistake, see `dualml.parity.causes.known_mistakes`.
    """

    foreign: bool
    rank: float
    stated: bool
    rarer: bool
    known: bool = False


@dataclass(frozen=True)
class AssessmentRecord:
    """A whole run under mutations, judged against the other side.

    Attributes:
        changes: the mutations of the run, in the order in which they were added.
        verdict, reason, steps: as of a `ModelComparison`.
        reached: the point up to which both sides agree, see ``reach`` of `ModelComparison`.
        lost: number of values of the other side that the run does not compute.
        worst: the largest ratio of a distance to the rounding measured there.
        step, phase, kind, distance: of the first divergence; phase is empty if there is none.
        left: the distance that remains where the run without the last mutation first diverged.
        enough: whether at most `REST` of the difference remains anywhere. The remainder may exceed
            the rounding measured before, because Adam turns any small gradient into a full step.
        results: hash of all results; empty if the run agrees no farther than the one before.
        prior: of the last mutation; None if there is none.
        run: the run itself, for the host alone.
    """

    changes: tuple[Mutation, ...]
    verdict: str
    reason: str
    steps: int
    reached: tuple[float, float]
    lost: int
    worst: float
    step: int = 0
    phase: str = ""
    kind: str = ""
    distance: float = 0.0
    left: float = 0.0
    enough: bool = False
    results: str = ""
    prior: Prior | None = None
    run: Any = field(default=None, compare=False, repr=False)

    @property
    def reach(self) -> tuple[float, float]:
        """The point up to which both sides agree; infinite if they are equal."""
        return (float("inf"), 0) if self.is_resolved else self.reached

    @property
    def is_resolved(self) -> bool:
        """Whether both sides are equal, fail in the same way, or enough of the difference is
        explained."""
        return self.enough or self.verdict == "equal" or self.reason == "both_raised"

    @property
    def is_computed(self) -> bool:
        """Whether the difference begins in what is computed from the weights."""
        return GROUPS.get(self.phase) == 0

    def leaves_at_most(self, share: float, now: AssessmentRecord) -> bool:
        """Return whether the run is resolved, or leaves at most this share of the values unmatched
        in ``now``."""
        return self.is_resolved or self.lost <= share * now.lost


def is_accepted(now: AssessmentRecord, run: AssessmentRecord) -> bool:
    """Return whether the last mutation of ``run`` counts as an explanation of the difference in
    ``now``, the run without it.

    A run that agrees no farther than ``now`` never counts. A resolved run does; one whose number
    was fitted to the difference counts only if it is resolved. A difference in computed values must
    leave fewer of them unmatched. One in gradients or updates must be gone in every update and
    every parameter: whatever differs afterwards must belong to a later phase. The first update
    alone is not enough, because a dampened first gradient and a wrong step counter look the same
    there.
    """
    if run.reach <= now.reach:
        return False
    if run.is_resolved:
        return True
    if is_fitted(run.changes[-1]) or not (now.phase and run.phase) or run.verdict != "different":
        return False
    same = GROUPS[now.phase] == GROUPS[run.phase]
    if now.is_computed:
        # Taking a value that both sides have makes it match, but explains nothing.
        # If a mean over everything hides an error before it, nothing was explained.
        return run.lost < max(now.lost, 1) and (run.step == now.step or not same)
    return not same and (run.step, GROUPS[run.phase]) > (now.step, GROUPS[now.phase])


def select_explaining(
    now: AssessmentRecord, runs: Sequence[AssessmentRecord]
) -> list[AssessmentRecord]:
    """Return the runs, in their order, that leave at most a hundredth of the first difference of
    ``now``, or at most twice as much as the best run does. ``runs`` must not be empty."""
    allowed = max(REST * now.distance, 2 * min(run.left for run in runs))
    return [run for run in runs if run.left <= allowed]


def is_firm(change: Mutation) -> bool:
    """Return whether a mutation is accepted even if the two sides are not equal under it.

    Mutations of kinds that can produce arbitrary numbers (``extra``, ``function``, ``constant``,
    ``dtype``, ``gradient``, ``optimizer``) are not. Inserted low-precision numbers and Dropout are,
    because they can only be verified as they are.
    """
    if change.action == "dropout" or (change.kind == "dtype" and change.action == "numbers"):
        return True
    return change.kind not in ("extra", "function", "constant", "dtype", "gradient", "optimizer")


def is_fitted(change: Mutation) -> bool:
    """Return whether the mutation's number was fitted to the difference, so that it must explain
    all of it: a factor or schedule of the learning rate, a scale of gradients, or a mutation whose
    ``old`` is FITTED."""
    word = str(change.argument)
    return word in ("lr_factor", "lr_schedule", "gradient:scale") or change.old == FITTED
