"""Requirements on pipeline stages and tensor parallel layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Answer, Arrays, Call, Difference, Flags, Requirement
from dualml.course.lab1.requirements import MARGIN, PLACES, finite_most, rounded
from dualml.course.lab4 import rules

Draw = np.random.Generator
FEATURES, WIDTH, OUTPUTS, STEPS = 4, 3, 2, 3
#: Numbers of features divisible by 1, 2, 3 and 4 ranks.
WIDE, NARROW, SAMPLES = 12, 5, 4
STAGES = ("stage_undivided", "stage_divided_twice", "stage_last_alone", "stage_first_micro_batch",
          "stage_first_frozen", "stage_second_frozen", "stage_order_crossed",
          "stage_last_gradient", "stage_accumulated")  # fmt: skip
COLUMN = ("column_reversed", "column_bias_missing", "column_gradient_local",
          "column_gradient_mean", "bias_gradient_mean", "weight_gradient_mean")  # fmt: skip
ROW = ("row_not_reduced", "row_bias_every_rank", "row_bias_missing", "row_mean", "row_reversed",
       "row_gradient_reduced", "bias_gradient_mean", "weight_gradient_mean")  # fmt: skip
#: Patterns of errors if ranks make different requests or one makes none, and the mistakes that they
#: show.
APART = (
    ("ranks disagree", "crossed"),
    ("CommunicationError: .*(waited|missing|no answer|failed on rank|is gone)", "one_sided"),
)
Rule = Callable[..., list[dict[str, Any]]]


def drawn(draw: Draw, *shape: int) -> Any:
    """Draw a float32 array with two decimals."""
    return np.asarray(draw.normal(size=shape).round(2), np.float32)


@dataclass
class Split(Requirement):
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
    looks: Sequence[str] = ()
    micro_batches: int = 1
    points: float = 1.0
    errors: Sequence[tuple[str, str]] = APART

    def calls(self, draw: Draw) -> list[Call]:
        make = self.staged if self.rule is rules.stages else self.cut
        return [make(draw, n) for n in self.ranks]

    def staged(self, draw: Draw, ranks: int) -> Call:
        """Make a call of pipeline stages."""
        options = {"comm": True, "hyper": {}, "lr": rounded(draw.uniform(0.1, 0.4)),
                   "steps": STEPS, "micro_batches": self.micro_batches, "width": WIDTH}  # fmt: skip
        samples = 2 * self.micro_batches
        arrays: list[dict[str, Any]] = [
            {"weight": drawn(draw, WIDTH, FEATURES), "bias": drawn(draw, WIDTH)},
            {"weight": drawn(draw, OUTPUTS, WIDTH), "bias": drawn(draw, OUTPUTS)},
        ]
        for step in range(1, STEPS + 1):
            arrays[0][f"x/{step}"] = drawn(draw, samples, FEATURES)
            arrays[1][f"y/{step}"] = drawn(draw, samples, OUTPUTS)
        return Call("stages", self.target, options, arrays)

    def cut(self, draw: Draw, ranks: int) -> Call:
        """Make a call of a tensor parallel layer."""
        rows = self.rule is rules.row
        out, wide = (NARROW, WIDE) if rows else (WIDE, NARROW)
        w, b = drawn(draw, out, wide), drawn(draw, out)
        x, g = drawn(draw, SAMPLES, wide), drawn(draw, SAMPLES, out)
        each = WIDE // ranks
        arrays = []
        for r in range(ranks):
            part = slice(r * each, (r + 1) * each)
            own = {"x": x[:, part], "g": g} if rows else {"x": x, "g": g[:, part]}
            arrays.append({"w": w, "b": b, **{k: np.ascontiguousarray(a) for k, a in own.items()}})
        return Call("layer", self.target, {"comm": True, "hyper": {}}, arrays)

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        return self.computed(call, flags, np.float64)

    def computed(self, call: Call, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results that count, with these mistakes in a dtype."""
        made = self.rule(call.options, call.arrays, flags, number)
        return [{k: a for k, a in own.items() if not self.looks or k in self.looks} for own in made]

    def tolerance(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        exact, single = (self.computed(call, flags, n) for n in (np.float64, np.float32))
        off = [np.abs(s[k] - e[k]) for s, e in zip(single, exact, strict=True) for k in e]
        largest = max(finite_most(a) for e in exact for a in e.values())
        most = MARGIN * max(map(finite_most, off)) + PLACES * np.spacing(np.float32(largest))
        return [dict.fromkeys(e, np.asarray(most)) for e in exact]


@dataclass
class Traffic(Split):
    """Requirement on the number of all-reduces of a layer, forward and backward.

    Attributes:
        forward, backward: number of all-reduces that it needs.
    """

    forward: int = 0
    backward: int = 0

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        for rank, arrays in enumerate(answer.arrays):
            for key, most in (("forward", self.forward), ("backward", self.backward)):
                made = len(arrays[key])
                if made > most:
                    return Difference(rank, key, None, made, most), ("too_many_sums",)
        return None


def requirements() -> list[Requirement]:
    """Return the requirements on stages and layers."""
    return [
        Split("stages.whole", "train_step", rules.stages, STAGES),
        Split("stages.micro", "train_step", rules.stages, STAGES, micro_batches=4),
        Split("column.forward", "ColumnLinear", rules.column, COLUMN, (2, 3, 1), looks=("y",)),
        Split("column.backward", "ColumnLinear", rules.column, COLUMN, (2, 4)),
        Traffic("column.sums", "ColumnLinear", rules.column, ("too_many_sums",), (2,), backward=1),
        Split("row.forward", "RowLinear", rules.row, ROW, (2, 3, 1), looks=("y",)),
        Split("row.backward", "RowLinear", rules.row, ROW, (2, 4)),
        Traffic("row.sums", "RowLinear", rules.row, ("too_many_sums",), (2,), forward=1),
    ]
