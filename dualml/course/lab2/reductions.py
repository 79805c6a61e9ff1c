"""Requirements on collectives that ranks make together, on several numbers of ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualml.course import computed
from dualml.course.computed import ComputedRequirement, Draw, max_finite, select_keys
from dualml.course.differences import first_difference
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Trouble,
)
from dualml.course.lab2.measuring import WRONG_COLLECTIVE

#: Places at which a mistake of a sum may act alone.
PLACES = (
    *("rank=0", "rank=!0", "rank=-1", "tensor=0", "tensor=!0", "tensor=-1"),
    *("source=0", "source=!0", "source=-1", "row=0", "row=!0", "row=-1", "row=!-1"),
)
#: Patterns of errors if ranks make different requests or one makes none, and the mistakes that they
#: show.
RANK_MISMATCH = (
    *computed.RANK_MISMATCH,
    (r"ValueError: rank \d+ receives \d+ elements", "ring_index"),
    WRONG_COLLECTIVE,
)
#: Patterns of errors of functions that gather on rank 0: what the other ranks do with None, and
#: what they leave without a value.
ROOT_ERRORS = (
    (r"UnboundLocalError", "broadcast_nothing"),
    (r"received None|'NoneType' object has no attribute '(dtype|shape)'", "broadcast_nothing"),
    (r"TypeError: .*(NoneType|\(None\))", "gather_none"),
)
DrawInputs = Callable[[Draw, int], list[dict[str, Any]]]
#: Tolerance of what has to stay as it is.
ZERO = np.zeros(())


def addition_error(ranks: Sequence[Arrays]) -> float:
    """Return the largest error of float32 additions of all ranks' arrays of one name, whatever
    their order: n · 2⁻²⁴ · Σ|x|, of the largest Σ|x| (Higham, Accuracy and Stability of Numerical
    Algorithms, section 4.2). Where terms cancel, it is more than what one order shows."""
    names = [key for key in ranks[0] if key[0] == "t"]  # tensors, not counts of samples
    sums = (sum(np.abs(own[key].astype(np.float64)) for own in ranks) for key in names)
    return len(ranks) * 2.0**-24 * max(map(max_finite, sums), default=0.0)


@dataclass
class CollectiveRequirement(ComputedRequirement):
    """Requirement with one right answer on every rank, for several numbers of ranks.

    Attributes:
        kind: kind of the calls.
        rule: function of all ranks' arrays, mistakes and dtype that returns each rank's results.
        draw_inputs: function that draws the arrays of all ranks.
        options: options of the calls.
        result_keys: keys of the results that count; empty: all.
        slack: number of elements by which a right answer may differ, since any rank may have the
            longest chunk.
    """

    name: str
    target: str
    kind: str
    rule: Callable[[Sequence[Arrays], Flags, Any], list[dict[str, Any]]]
    draw_inputs: DrawInputs
    ranks: Sequence[int]
    flags: Sequence[str] = ()
    options: Any = None
    places: Sequence[str] = PLACES
    result_keys: Sequence[str] = ()
    slack: float = 0.0
    errors: Sequence[tuple[str, str]] = RANK_MISMATCH

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``, with inputs from ``draw_inputs``."""
        options = {"comm": True, "hyper": {}, **(self.options or {})}
        return [
            ExerciseCall(self.kind, self.target, options, self.draw_inputs(draw, n))
            for n in self.ranks
        ]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count by ``rule`` in the dtype ``number``, with the
        typical mistakes named in ``flags``, or without any for a ``guarded`` call."""
        made = self.rule(call.arrays, RIGHT if call.options.get("guarded") else flags, number)
        return [select_keys(own, self.result_keys) for own in made]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error and from that of
        additions in any order; ``slack`` for the count ``elements``."""
        slack, more = {"elements": np.asarray(self.slack)}, addition_error(call.arrays)
        return [
            {k: slack.get(k, np.maximum(a, more)) for k, a in own.items()}
            for own in super().tolerance(call, flags)
        ]

    def adopt_choices(self, call: ExerciseCall, answer: Answer) -> Sequence[ExerciseCall]:
        """Return the call, and on one rank also with ``guarded``: many a function treats one rank
        apart, so that its mistakes show on several ranks only."""
        guarded = replace(call, options={**call.options, "guarded": True})
        return [call, guarded] if call.ranks == 1 else [call]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, with the mistake ``one_result`` if one tensor came in place
        of several; if there is none, the first tensor that a result has too many; None if the
        answer is right."""
        found = super().problem(call, answer)
        for rank, own in enumerate(answer.arrays):
            returned = [key for key in own if key.isdigit()]
            more = [key for key in returned if f"t/{key}" not in call.arrays[rank]]
            if found is None and more:
                shape = f"shape {own[more[0]].shape}"
                return Difference(rank, more[0], None, shape, "nothing"), ()
            if found is not None and len(returned) == 1 and "t/1" in call.arrays[rank]:
                return found[0], ("one_result",)
        return found

    def mistakes_of(self, trouble: Trouble) -> tuple[str, ...]:
        """Return the typical mistake that an error in the student's lines shows; none for None as
        a result, which no line raises."""
        if "NoneType" in trouble.message and not trouble.line:
            return ()
        return super().mistakes_of(trouble)

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return every rank's element at the wrong position, and its number of samples if it has
        one; empty if the difference has no element."""
        if difference.index is None:
            return {}
        shown: dict[str, Any] = {}
        key = difference.key.removeprefix("before/")
        name = "t" if key in ("sum", "before") else f"t/{key}"
        for rank, arrays in enumerate(call.arrays):
            if name in arrays and arrays[name].ndim == len(difference.index):
                shown[f"g (rank {rank})"] = float(arrays[name][difference.index])
            if "samples" in arrays:
                shown[f"n (rank {rank})"] = int(arrays["samples"])
        return shown


def keep_arguments(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Any = np.float64
) -> list[dict[str, Any]]:
    """Return every rank's tensors ``t`` or ``t/NAME`` as ``before`` or ``before/NAME``, in the
    dtype ``number``: what a function has to leave as it was."""
    return [
        {f"before{key[1:]}": a.astype(number) for key, a in own.items() if key[0] == "t"}
        for own in ranks
    ]


@dataclass
class UnchangedInputRequirement(CollectiveRequirement):
    """Requirement on arguments that must stay unchanged.

    Attributes:
        mistake: the one mistake that changes them.
    """

    mistake: str = "ring_in_place"

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference with the mistake; None if there is none."""
        wrong = super().problem(call, answer)
        return None if wrong is None else (wrong[0], (self.mistake,))


@dataclass
class ChosenWayRequirement(CollectiveRequirement):
    """Requirement on a function that makes a sum in the way that its argument names.

    Attributes:
        way, other: collective that carries the tensors in the way that is asked for, and in the
            other one.
    """

    way: str = ""
    other: str = ""

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference; if there is none, the first rank that has passed its tensors
        to the other way's collective instead, with the mistake ``chosen_ignored``, or the first
        argument that has changed, with ``arguments_changed``; else None."""
        found = super().problem(call, answer)
        if found is not None:
            return found
        kept = keep_arguments(call.arrays)
        changed = first_difference(answer.arrays, kept, [dict.fromkeys(k, ZERO) for k in kept])
        if changed is not None:
            return changed, ("arguments_changed",)
        for rank, own in enumerate(answer.arrays):
            elements = sum(a.size for key, a in call.arrays[rank].items() if key[0] == "t")
            passed = {way: int(own[f"sent/{way}"].sum()) for way in (self.way, self.other)}
            if passed[self.way] < elements <= passed[self.other]:
                key = f"passed/{self.way}"
                return Difference(rank, key, None, passed[self.way], elements), ("chosen_ignored",)
        return None
