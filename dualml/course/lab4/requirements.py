"""Requirements on pipeline stages and tensor parallel layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import (
    RANK_MISMATCH,
    ComputedRequirement,
    Draw,
    draw_array,
    round_for_display,
    select_keys,
)
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.lab4 import rules
from dualml.course.mistakes import mistake_groups

FEATURES, WIDTH, OUTPUTS, STEPS = 4, 3, 2, 3
#: Numbers of features divisible by 1, 2, 3 and 4 ranks.
WIDE, NARROW, SAMPLES = 12, 5, 4
STAGES, COLUMN, ROW = mistake_groups("lab4", "stages", "column", "row")
Rule = Callable[..., list[dict[str, Any]]]


@dataclass
class ModelParallelRequirement(ComputedRequirement):
    """Requirement on a split model with one right answer for every rank.

    Attributes:
        rule: function of options, all ranks' arrays, mistakes and dtype that returns each rank's
            results.
        result_keys: keys of the results that count; empty: all.
    """

    name: str
    target: str
    rule: Rule
    flags: Sequence[str] = ()
    ranks: Sequence[int] = (2,)
    result_keys: Sequence[str] = ()
    micro_batches: int = 1
    errors: Sequence[tuple[str, str]] = RANK_MISMATCH

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``, of pipeline stages or of a layer."""
        make = self.make_stage_call if self.rule is rules.train_stages else self.make_layer_call
        return [make(draw, n) for n in self.ranks]

    def make_stage_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call of two pipeline stages, each with its own layer, over `STEPS` updates with
        random samples; ``ranks`` does not matter."""
        options = {
            "comm": True,
            "hyper": {},
            "lr": round_for_display(draw.uniform(0.1, 0.4)),
            "steps": STEPS,
            "micro_batches": self.micro_batches,
            "width": WIDTH,
        }
        samples = 2 * self.micro_batches
        arrays: list[dict[str, Any]] = [
            {"weight": draw_array(draw, WIDTH, FEATURES), "bias": draw_array(draw, WIDTH)},
            {"weight": draw_array(draw, OUTPUTS, WIDTH), "bias": draw_array(draw, OUTPUTS)},
        ]
        for step in range(1, STEPS + 1):
            arrays[0][f"x/{step}"] = draw_array(draw, samples, FEATURES)
            arrays[1][f"y/{step}"] = draw_array(draw, samples, OUTPUTS)
        return ExerciseCall("stages", self.target, options, arrays)

    def make_layer_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call of one tensor parallel layer: each rank has the whole weights, and its part
        of the inputs (row) or of the output gradients (column)."""
        rows = self.rule is rules.row_layer
        out, wide = (NARROW, WIDE) if rows else (WIDE, NARROW)
        w, b = draw_array(draw, out, wide), draw_array(draw, out)
        x, g = draw_array(draw, SAMPLES, wide), draw_array(draw, SAMPLES, out)
        each = WIDE // ranks
        arrays = []
        for r in range(ranks):
            part = slice(r * each, (r + 1) * each)
            own = {"x": x[:, part], "g": g} if rows else {"x": x, "g": g[:, part]}
            arrays.append({"w": w, "b": b, **{k: np.ascontiguousarray(a) for k, a in own.items()}})
        return ExerciseCall("layer", self.target, {"comm": True, "hyper": {}}, arrays)

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count in the dtype ``number``, with the mistakes
        ``flags``."""
        made = self.rule(call.options, call.arrays, flags, number)
        return [select_keys(own, self.result_keys) for own in made]


@dataclass
class AllReduceCountRequirement(ModelParallelRequirement):
    """Requirement on the number of all-reduces of a layer, forward and backward.

    Attributes:
        forward, backward: number of all-reduces that it needs.
    """

    forward: int = 0
    backward: int = 0

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first rank and pass with more all-reduces than it needs; None if there is
        none."""
        for rank, arrays in enumerate(answer.arrays):
            for key, most in (("forward", self.forward), ("backward", self.backward)):
                made = len(arrays[key])
                if made > most:
                    return Difference(rank, key, None, made, most), ("too_many_sums",)
        return None


def requirements() -> list[Requirement]:
    """Return the requirements on stages and layers."""
    return [
        ModelParallelRequirement("stages.whole", "train_step", rules.train_stages, STAGES),
        ModelParallelRequirement(
            "stages.micro", "train_step", rules.train_stages, STAGES, micro_batches=4
        ),
        ModelParallelRequirement(
            "column.forward",
            "ColumnLinear",
            rules.column_layer,
            COLUMN,
            (2, 3, 1),
            result_keys=("y",),
        ),
        ModelParallelRequirement(
            "column.backward", "ColumnLinear", rules.column_layer, COLUMN, (2, 4)
        ),
        AllReduceCountRequirement(
            "column.sums", "ColumnLinear", rules.column_layer, ("too_many_sums",), (2,), backward=1
        ),
        ModelParallelRequirement(
            "row.forward", "RowLinear", rules.row_layer, ROW, (2, 3, 1), result_keys=("y",)
        ),
        ModelParallelRequirement("row.backward", "RowLinear", rules.row_layer, ROW, (2, 4)),
        AllReduceCountRequirement(
            "row.sums", "RowLinear", rules.row_layer, ("too_many_sums",), (2,), forward=1
        ),
    ]
