"""Requirements on measuring, diagnosing and mending a bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.bottleneck import rules
from dualml.course.bottleneck.splitting import SplitRequirement
from dualml.course.computed import ComputedRequirement, Draw, draw_array, rounding_tolerance
from dualml.course.drive_bottleneck import KINDS
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.lab3.draws import FEATURES, OUTPUTS, draw_parameters
from dualml.course.lab3.rank_optimizer import WEIGHTS
from dualml.course.lab3.rules import loss_and_gradient
from dualml.course.mistakes import mistake_groups

#: Rounds that are measured, and updates that are made.
ROUNDS, STEPS = 5, 2
#: Pattern of the errors that occur if one rank does not take part.
RANK_MISMATCH = r"CommunicationError: (rank \d+ waited|the ranks disagree|.*(is gone|missing))"
MEASURE, DIAGNOSE, STEP = mistake_groups("bottleneck", "measure", "diagnose", "step")


@dataclass
class MeasureRequirement(ComputedRequirement):
    """Requirement on the measured seconds of every rank."""

    name: str
    ranks: Sequence[int]
    flags: Sequence[str] = MEASURE
    target: str = "measure"

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks, with one slow rank and one disturbed round."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call on this number of ranks."""
        arrays = []
        slow, disturbed = int(draw.integers(ranks)), int(draw.integers(1, ROUNDS))
        for rank in range(ranks):
            compute = draw.uniform(0.08, 0.12, ROUNDS + 1) + 0.05 * (rank == slow)
            transfer = draw.uniform(0.02, 0.04, ROUNDS + 1)
            compute[0] += 0.5  # the first round warms up
            compute[disturbed] += 0.3 * (rank == ranks - 1)
            own = {"compute": compute.round(4), "transfer": transfer.round(4)}
            own |= {"offset": np.asarray(draw.uniform(5, 900).__round__(2))}
            arrays.append(own | {"late": np.asarray(round(float(draw.uniform(0, 0.4)), 3))})
        options = {"comm": True, "hyper": {"rounds": ROUNDS}}
        return ExerciseCall("measure", self.target, options, arrays)

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the table of times, the same on every rank."""
        times = rules.measured_times(call.arrays, ROUNDS, flags, number)
        return [{"times": times} for _ in call.arrays]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, with ``bn_not_gathered`` for a table of one rank; None if
        there is none."""
        found = super().problem(call, answer)
        if found is None:
            return None
        alone = answer.arrays[0].get("times")
        if alone is not None and alone.size == 3 and call.ranks > 1:
            return found[0], ("bn_not_gathered",)
        return found

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the seconds of each counted round from which the wrong number is computed: those
        of computing, sending or waiting; empty if the table has another shape."""
        if not difference.index:
            return {}
        rank, column = difference.index
        name = ("compute", "transfer", "wait")[column]
        busy = np.array([own["compute"] + own["transfer"] for own in call.arrays])
        seconds = {**call.arrays[rank], "wait": busy.max(0) - busy[rank]}[name]
        return {f"{name}_{i}": float(seconds[i]) for i in range(1, ROUNDS + 1)}


@dataclass
class DiagnoseRequirement(ComputedRequirement):
    """Requirement on the diagnosis of some tables of times."""

    name: str
    flags: Sequence[str] = DIAGNOSE
    target: str = "diagnose"

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call with tables that tell the mistakes apart."""
        tables = [draw_table(draw, *case) for case in CASES]
        arrays = {str(i): table for i, table in enumerate(tables)}
        return [ExerciseCall("diagnose", self.target, {"tables": len(tables)}, [arrays])]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute ``kinds`` and ``ranks``, arrays over all tables, for the one rank."""
        tables = (call.arrays[0][str(i)] for i in range(call.options["tables"]))
        found = [rules.diagnose(table, flags) for table in tables]
        kinds = np.array([KINDS.index(kind) for kind, _ in found], number)
        return [{"ranks": np.array([rank for _, rank in found], number), "kinds": kinds}]

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the table of the wrong diagnosis, row by row."""
        if not difference.index:
            return {}
        table = call.arrays[0][str(difference.index[0])]
        return {f"times[{rank}]": [float(s) for s in row] for rank, row in enumerate(table)}


#: Tables: number of ranks, usual seconds of computing and sending, and what the slow rank adds.
CASES = (
    (3, 0.10, 0.03, 0.06, 0.0),
    (3, 0.10, 0.03, 0.0, 0.06),
    (4, 0.05, 0.20, 0.09, 0.01),  # sending is the larger part everywhere
    (4, 0.20, 0.02, 0.10, 0.04),  # the link is slower by the larger factor
    (3, 0.20, 0.05, 0.01, 0.14),
    (4, 0.10, 0.10, 0.0, 0.0),  # no bottleneck
    (3, 0.08, 0.02, 0.031, 0.0),  # longer than the others', not than the mean of all
)


def draw_table(
    draw: Draw, ranks: int, compute: float, transfer: float, more: float, longer: float
) -> Any:
    """Draw a table of times (ranks, 3), the seconds of computing, sending and waiting, with one
    random slow rank; if its link is the reason, the next rank computes longest.

    Args:
        compute, transfer: usual seconds of computing and of sending.
        more, longer: seconds that the slow rank computes and sends in addition.
    """
    table = np.zeros((ranks, 3))
    table[:, 0] = compute * draw.uniform(0.99, 1.01, ranks)
    table[:, 1] = transfer * draw.uniform(0.99, 1.01, ranks)
    slow = int(draw.integers(ranks))
    table[slow, :2] += more, longer
    if longer > more:  # another rank computes a little longer, and yet it waits
        table[(slow + 1) % ranks, 0] += 0.02 + more
    table = table.round(4)
    busy = table[:, 0] + table[:, 1]
    table[:, 2] = (busy.max() - busy).round(4)
    return table


@dataclass
class BalancedStepRequirement(ComputedRequirement):
    """Requirement on updates with parts of different sizes.

    Attributes:
        empty: whether one rank has no samples.
    """

    name: str
    ranks: Sequence[int]
    flags: Sequence[str] = STEP
    empty: bool = False
    errors: Sequence[tuple[str, str]] = ()
    target: str = "balanced_step"

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call with equal parameters and batches on all ranks."""
        # Parts that no even division gives.
        sizes = [int(s) for s in draw.choice(np.arange(1, 11, 2), ranks, replace=False)]
        if self.empty:
            sizes[int(draw.integers(ranks))] = 0
        hyper = {"lr": round(float(draw.uniform(0.1, 0.3)), 2), "sizes": sizes}
        arrays = dict(draw_parameters(draw))
        for step in range(1, STEPS + 1):
            for name, width in (("x", FEATURES), ("y", OUTPUTS)):
                arrays[f"{name}/{step}"] = draw_array(draw, sum(sizes), width)
        options = {"comm": True, "hyper": hyper, "steps": STEPS}
        return ExerciseCall("balanced", self.target, options, [dict(arrays) for _ in range(ranks)])

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's parameters and rows after every update, in the dtype
        ``number``."""
        with np.errstate(all="ignore"):
            return rules.balanced_training(call.options, call.arrays, flags, number)

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error."""
        exact, single = (self.compute(call, flags, n) for n in (np.float64, np.float32))
        most = rounding_tolerance(exact, single, lambda key: "rows" not in key)
        return [dict.fromkeys(own, most) for own in exact]

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, and each rank's number of samples
        and gradient in it; for a number of rows the sizes alone."""
        step, _, name = difference.key.partition("/")
        if difference.index is None:
            return {}
        sizes = call.options["hyper"]["sizes"]
        counts = {f"n_{rank}": size for rank, size in enumerate(sizes)}
        if name == "rows":
            return counts
        at, own, right = int(step) - 1, call.arrays[0], self.expected(call)[0]
        weights = {w: right.get(f"{at}/{w}", own[f"p/{w}"]) for w in WEIGHTS}
        shown = {f"θ_{at}": float(weights[name][difference.index])}
        for rank, size in enumerate(sizes):
            part = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
            given = (own["p/shift"], own[f"x/{step}"][part], own[f"y/{step}"][part])
            gradient = loss_and_gradient(weights, *(a.astype(np.float64) for a in given))[1]
            shown |= {f"n_{rank}": size, f"g_{rank}": float(gradient[name][difference.index])}
        return shown


REQUIREMENTS: Sequence[Requirement] = (
    MeasureRequirement("bottleneck.measure", (2, 3)),
    DiagnoseRequirement("bottleneck.diagnose"),
    SplitRequirement("bottleneck.split"),
    BalancedStepRequirement("bottleneck.step", (2,)),
    BalancedStepRequirement(
        "bottleneck.empty",
        (3,),
        empty=True,
        errors=((RANK_MISMATCH, "bn_empty_leaves"), ("NoneType", "bn_empty_no_gradient")),
    ),
)
