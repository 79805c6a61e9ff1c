"""Requirements on the functions of Lab 2, on one to four ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course import computed
from dualml.course.computed import ComputedRequirement, Draw, draw_array, select_keys
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.lab2 import rules
from dualml.course.lab2.measuring import LATE_S, WRONG_COLLECTIVE, TimingRequirement
from dualml.course.mistakes import mistake_groups

SHAPES = ((3, 2), (4,), ())
SUMS, MEANS, RING = mistake_groups("lab2", "sums", "means", "ring")
TRAFFIC = ("ring_everything", *RING)
#: Number of elements by which a few chunks differ.
ELEMENTS = 4.0
#: Patterns of errors if ranks make different requests or one makes none, and the mistakes that they
#: show.
RANK_MISMATCH = (
    *computed.RANK_MISMATCH,
    (r"ValueError: rank \d+ receives \d+ elements", "ring_index"),
    WRONG_COLLECTIVE,
)


DrawInputs = Callable[[Draw, int], list[dict[str, Any]]]


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
    places: Sequence[str] = ("rank=0", "rank=!0", "rank=-1", "tensor=0", "tensor=!0", "tensor=-1")
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
        mistakes ``flags``."""
        made = self.rule(call.arrays, flags, number)
        return [select_keys(own, self.result_keys) for own in made]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error; ``slack`` for the
        count ``elements``."""
        slack = {"elements": np.asarray(self.slack)}
        return [{k: slack.get(k, a) for k, a in e.items()} for e in super().tolerance(call, flags)]

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return every rank's element at the wrong position, and its number of samples if it has
        one; empty if the difference has no element."""
        if difference.index is None:
            return {}
        shown: dict[str, Any] = {}
        name = "t" if difference.key == "sum" else f"t/{difference.key}"
        for rank, arrays in enumerate(call.arrays):
            if name in arrays:
                shown[f"g (rank {rank})"] = float(arrays[name][difference.index])
            if "samples" in arrays:
                shown[f"n (rank {rank})"] = int(arrays["samples"])
        return shown


@dataclass
class UnchangedInputRequirement(CollectiveRequirement):
    """Requirement on inputs that must stay unchanged; only one mistake changes them."""

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference with the mistake ``ring_in_place``; None if there is none."""
        wrong = super().problem(call, answer)
        return None if wrong is None else (wrong[0], ("ring_in_place",))


def draw_uneven(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw gradients, and different numbers of samples for all ranks."""
    counts = draw.choice(np.arange(2, 12), ranks, replace=False)
    return [
        {
            **{f"t/{i}": draw_array(draw, *s) for i, s in enumerate(SHAPES)},
            "samples": np.asarray(counts[r], np.int32),
        }
        for r in range(ranks)
    ]


def draw_gradients(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw gradients without numbers of samples."""
    return [{f"t/{i}": draw_array(draw, *s) for i, s in enumerate(SHAPES)} for _ in range(ranks)]


def draw_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw a matrix (rows, 1) for each rank, whose elements as many chunks as ranks cannot share
    evenly."""
    rows = int(draw.integers(2, 4)) * ranks + 1
    return [{"t": draw_array(draw, rows, 1)} for _ in range(ranks)]


def draw_short_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank a vector of fewer elements than ranks, so that some chunks are empty."""
    rows = int(draw.integers(1, ranks))
    return [{"t": draw_array(draw, rows)} for _ in range(ranks)]


def draw_long_vector(draw: Draw, ranks: int) -> list[dict[str, Any]]:
    """Draw for each rank a vector of so many elements that one chunk more or less does not
    matter."""
    rows = int(draw.integers(20, 40)) * ranks + 1
    return [{"t": draw_array(draw, rows)} for _ in range(ranks)]


def mean_requirements(
    target: str, collectives: Sequence[str], name: str, how: str = ""
) -> list[Requirement]:
    """Return two requirements on one way to average gradients: on several ranks, and on one.
    ``collectives`` are those that it may use, and ``how`` is passed to the student's function
    unless it is empty."""
    options: dict[str, Any] = {"collectives": list(collectives)}
    if how:
        options["how"] = {"how": how}
    several = (2, 3, 4) if not how else (3,)
    rule, draw = rules.average_gradients, draw_uneven
    return [
        CollectiveRequirement(f"{name}.{what}", target, "aggregate", rule, draw, n, SUMS, options)
        for what, n in (("uneven", several), ("alone", (1,)))
    ]


def ring_requirement(
    name: str,
    draw_inputs: DrawInputs,
    ranks: Sequence[int],
    flags: Sequence[str] = RING,
    result_keys: Sequence[str] = ("sum",),
    slack: float = 0.0,
    kind: type[CollectiveRequirement] = CollectiveRequirement,
) -> Requirement:
    """Return a requirement on the ring all-reduce, with these fields of `CollectiveRequirement`."""
    rule = rules.ring_all_reduce
    fields = (name, "ring_all_reduce", "ring", rule, draw_inputs, ranks, flags)
    return kind(*fields, result_keys=result_keys, slack=slack)


def requirements() -> list[Requirement]:
    """Return the requirements of Lab 2."""
    some = {"collectives": ["all_reduce", "gather", "broadcast"]}
    both = some["collectives"]
    return [
        *mean_requirements("by_all_reduce", ["all_reduce"], "reduce"),
        *mean_requirements("by_gather_broadcast", ["gather", "broadcast"], "gather"),
        mean_requirements("sum_gradients", both, "chosen.reduce", "all_reduce")[0],
        mean_requirements("sum_gradients", both, "chosen.gather", "gather_broadcast")[0],
        CollectiveRequirement(
            "average.mean",
            "average_parameters",
            "aggregate",
            rules.average_parameters,
            draw_gradients,
            (1, 2, 4),
            MEANS,
            some,
        ),
        ring_requirement("ring.sum", draw_vector, (2, 3, 4)),
        ring_requirement("ring.short", draw_short_vector, (4,)),
        ring_requirement("ring.alone", draw_vector, (1,)),
        ring_requirement(
            "ring.kept", draw_vector, (3,), (), ("before",), kind=UnchangedInputRequirement
        ),
        ring_requirement(
            "ring.traffic", draw_long_vector, (3, 4), TRAFFIC, ("messages", "elements"), ELEMENTS
        ),
        TimingRequirement("measure.typical", late=0.0),
        TimingRequirement("measure.late", late=LATE_S),
    ]
