"""Say how likely a mutation is before it is tried, and which of equal explanations is simplest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dualml.parity.causes.assessment import AssessmentRecord, Prior
from dualml.parity.causes.context import epsilon_values, numeric_constants
from dualml.parity.causes.known_mistakes import (
    COMPARISONS,
    exchanges_comparisons,
    find_mistake,
)
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.ratios import is_plausible_factor
from dualml.parity.causes.tables import (
    EQUIVALENT_FUNCTIONS,
    KINDS,
    LINE_ACTIONS,
    OPERATOR_FUNCTIONS,
)
from dualml.parity.models.operations import Operation


class CallCounts:
    """Counts of how often either side calls each function.

    Args:
        ours, theirs: the calls of this side and of the other side.
    """

    def __init__(self, ours: Iterable[Operation], theirs: Sequence[Operation]) -> None:
        self.epsilons = epsilon_values(theirs)
        self.ours = Counter(one.name for one in ours)
        self.theirs = Counter(one.name.lower().removesuffix("ext") for one in theirs)

    def count_other(self, word: str) -> int:
        """Return how often the other side calls functions whose lower-case name contains this
        function's, or that of an equivalent."""
        options = (word.replace("_", ""), *EQUIVALENT_FUNCTIONS.get(word, ()))
        return sum(n for name, n in self.theirs.items() if any(one in name for one in options))

    def has_fewer(self, word: str) -> bool:
        """Return whether the other side calls a function less often than this side."""
        return self.count_other(word) < self.ours[word]


def ranking_key(run: AssessmentRecord) -> tuple[Any, ...]:
    """Return the sort key of a run by its last mutation: simple explanations have smaller keys.

    It sorts by `Prior` first; then mutations that cover more similar calls come before single ones,
    then those that agree better.
    """
    assert run.prior is not None
    return run.prior.foreign, run.prior.rank, -len(run.changes[-1].sites), run.worst


def find_prior(calls: CallCounts, other: Callable[[], Operation | None], change: Mutation) -> Prior:
    """Return how likely a mutation is before it is tried.

    It is ranked by its kind, from settings to types, a known mistake right behind those of settings
    and of calls that are left out, and a comparison in place of another with constants. A flag of a
    function, or the threshold of a comparison, that the other side calls less often comes right
    after leaving the call out; a mutation
    that brings in a function that the other side never calls comes after all others, and behind
    these one that multiplies by a number that people would not write.

    Args:
        other: returns the operation of the other side at which the two diverge; None if there is
            none.
    """
    word = change.value if change.action == "function" else None
    if change.kind in ("function", "extra") and isinstance(change.value, tuple):
        word = change.value[0]
    foreign = isinstance(word, str) and not calls.count_other(word)
    rarer = calls.has_fewer(change.operation)
    rank = float(KINDS.index(change.kind))
    compares = OPERATOR_FUNCTIONS.get(change.operation, change.operation) in COMPARISONS
    if (isinstance(change.value, bool) or compares) and change.action == "set" and rarer:
        rank = KINDS.index("missing") + 0.5
    if (
        change.kind == "layout"
        and isinstance(change.value, tuple)
        and change.value[:1] in (("take",), ("arrange",))
    ):
        rank += 0.5  # a named rearrangement explains more
    if change.action == "set" and "eps" in str(change.argument):
        rank += 0.25 * (change.value not in calls.epsilons)
    if change.action.startswith("line:"):
        rank += (1 + LINE_ACTIONS.index(change.action.removeprefix("line:"))) / (
            2 + len(LINE_ACTIONS)
        )
    if change.action == "numbers":  # anything that names the numbers explains more
        rank = len(KINDS)
    if is_odd_scale(change):  # a number that nobody writes is no meaning
        foreign, rank = True, len(KINDS)
    if exchanges_comparisons(change):
        rank = KINDS.index("constant")
    known = find_mistake(change) is not None
    if known:  # behind another setting, and a call that is left out
        rank = min(rank, KINDS.index("missing") + 0.75)
    number = change.action == "set" or change.kind == "constant" or isinstance(change.value, float)
    stated = number and not (compares and rarer) and is_in_call(change, other())
    return Prior(foreign, rank, stated, rarer, known)


def is_odd_scale(change: Mutation) -> bool:
    """Return whether a mutation multiplies a value by a number that people would not write."""
    value = change.value
    scales = change.kind == "constant" and isinstance(value, tuple) and value[:1] == ("scale",)
    return scales and not is_plausible_factor(float(value[1]))


def is_in_call(change: Mutation, other: Operation | None) -> bool:
    """Return whether a number of the mutation occurs in the other side's call; 0, 1 and −1 do not
    count."""
    numbers = {} if other is None else {*numeric_constants(other.attributes)} - {-1.0, 0.0, 1.0}
    return any(value in numbers for value in numeric_constants({"": change.value}))
