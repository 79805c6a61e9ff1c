"""Requirements on tensor parallel layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from dualml.course.computed import (
    ComputedRequirement,
    Draw,
    draw_array,
    max_finite,
    select_keys,
)
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.judge import agrees
from dualml.course.lab4.explained import element_inputs
from dualml.course.lab4.layers import column_layer, row_layer
from dualml.course.mistakes import mistake_groups
from dualml.course.places import place_flags

#: Numbers of features divisible by 1, 2, 3 and 4 ranks, and others.
WIDE, NARROW, SAMPLES = 12, 5, 4
COLUMN, ROW, SLOPES = mistake_groups("lab4", "column", "row", "slopes")
Rule = Callable[..., list[dict[str, Any]]]
ENDS = ("rank=0", "rank=-1", "rank=!0", "rank=!-1")
PARAMETERS = ("parameter=0", "parameter=1")
PLACES = (*ENDS, *PARAMETERS, *(f"{end}&{which}" for end, which in product(ENDS, PARAMETERS)))
#: Largest difference, as a part of the largest number, at which a mistake is not ruled out.
ROUGH = 1e-3
#: Largest number of mistakes that explain one result, and of their combinations.
MAX_EXPLANATIONS, MAX_COMBINATIONS = 6, 300
#: Patterns of errors of any layer, and the mistakes that they show.
LAYER_ERRORS = (
    (r"(weight|bias)_grad: no attribute", "layer_gradient_missing"),
    (r": None → Tensor", "layer_no_result"),
    ("ranks disagree", "crossed"),
    ("CommunicationError: .*(waited|missing|no answer|failed on rank|is gone)", "layer_one_sided"),
    ("cannot be multiplied|must match|broadcast|must be equal|shape", "layer_shape"),
)
#: Those of shapes that tell which tensor has another than it should: PyTorch's message, or
#: MindSpore's.
COLUMN_ERRORS = (
    (
        rf"tensor a \({WIDE}\) must match|shape = \[{SAMPLES}, {WIDE}\] and other"
        rf"|\({SAMPLES}x{NARROW} and [0-{NARROW - 1}]x|but got {NARROW} and [0-{NARROW - 1}]\b",
        "column_weight_uncut",
    ),
    (
        rf"must match the size of tensor b \({WIDE}\)|other.shape = \[{WIDE}\]",
        "column_bias_uncut",
    ),
    *LAYER_ERRORS,
)
ROW_ERRORS = (
    (rf"\({SAMPLES}x\d+ and {WIDE}x|but got \d+ and {WIDE}\b", "row_weight_uncut"),
    (rf"\({SAMPLES}x0 and|but got 0 and", "row_input_sliced"),
    (rf"\({SAMPLES}x{WIDE} and|but got {WIDE} and", "row_input_gathered"),
    (
        rf"tensor a \({NARROW}\) must match the size of tensor b \([0-{NARROW - 1}]\)"
        rf"|shape = \[{SAMPLES}, {NARROW}\] and other.shape = \[[0-{NARROW - 1}]\]",
        "row_bias_cut",
    ),
    *LAYER_ERRORS,
)


@dataclass
class LayerRequirement(ComputedRequirement):
    """Requirement on a tensor parallel layer with one right answer for every rank.

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
    errors: Sequence[tuple[str, str]] = LAYER_ERRORS
    places: Sequence[str] = PLACES

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: Draw, ranks: int) -> ExerciseCall:
        """Make a call of one layer: each rank has the whole weights, and its part of the inputs
        (row) or of the output gradients (column)."""
        rows = self.rule is row_layer
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
        """Compute each rank's results that count in the dtype ``number``, with the typical mistakes
        named in ``flags``."""
        made = self.rule(call.options, call.arrays, flags, number)
        return [select_keys(own, self.result_keys) for own in made]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return an argument that was changed, or the first difference; None if there is
        neither."""
        for rank, arrays in enumerate(answer.arrays):
            found = argument_change(call, rank, arrays)
            if found is not None:
                return found, ("argument_changed",)
        return super().problem(call, answer)

    def further_candidates(
        self, calls: Sequence[ExerciseCall], answers: Sequence[Answer]
    ) -> Iterator[Flags]:
        """Yield sets of mistakes of which each explains one wrong result: of y, of x, of the weight
        or of the bias."""
        call, arrays = calls[0], answers[0].arrays
        right = self.expected(call)
        wrong = [k for k in right[0] if not is_near(arrays, select_each(right, (k,)))]
        found: dict[str, list[str]] = {key: [] for key in wrong}
        for flag in (*self.flags, *place_flags(self.flags, self.places)) if len(wrong) > 1 else ():
            made = self.expected(call, frozenset({flag}))
            for key in wrong:
                if len(found[key]) < MAX_EXPLANATIONS and is_near(
                    arrays, select_each(made, (key,))
                ):
                    found[key].append(flag)
        yield from islice(map(frozenset, product(*found.values())), MAX_COMBINATIONS)

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the numbers whose sum, or whose products' sum, is the differing number; empty if
        it has no element."""
        if difference.index is None or difference.key.startswith("before/"):
            return {}
        n, r, rows = call.ranks, difference.rank, self.rule is row_layer
        arrays = [{k: a.astype(np.float64) for k, a in own.items()} for own in call.arrays]
        parts = [slice(k * (WIDE // n), (k + 1) * (WIDE // n)) for k in range(n)]
        return element_inputs(arrays, parts, r, difference.key, difference.index, rows)


def select_each(arrays: Sequence[Arrays], keys: Sequence[str]) -> list[Arrays]:
    """Return each rank's arrays under ``keys``."""
    return [select_keys(own, keys) for own in arrays]


def is_near(arrays: Sequence[Arrays], made: Sequence[Arrays]) -> bool:
    """Return whether each rank has the arrays ``made``, with differences of at most `ROUGH` times
    the largest number of all."""
    largest = max((max_finite(a) for own in made for a in own.values()), default=0.0)
    most = np.asarray(ROUGH * max(largest, ROUGH))
    return agrees(arrays, made, [dict.fromkeys(own, most) for own in made])


def argument_change(call: ExerciseCall, rank: int, arrays: Arrays) -> Difference | None:
    """Return the largest change in the first argument that a rank's function has changed, or the
    shapes before and after if they differ; None if it has changed none. Drivers send a changed
    argument as ``changed/NAME``."""
    for key, after in arrays.items():
        kind, _, name = key.partition("/")
        if kind != "changed":
            continue
        before = call.arrays[rank][name]
        shown = f"before/{name.partition('/')[0]}"
        if after.shape != before.shape:
            return Difference(rank, shown, None, f"shape {after.shape}", f"shape {before.shape}")
        off = np.abs(np.asarray(after, np.float64) - before)
        at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
        index = tuple(int(i) for i in at)
        return Difference(rank, shown, index, float(after[index]), float(before[index]))
    return None


@dataclass
class AllReduceCountRequirement(LayerRequirement):
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


def layer_requirements() -> list[Requirement]:
    """Return the requirements on layers."""
    one, other = ("ColumnLinear", column_layer), ("RowLinear", row_layer)
    # The whole gradient of the bias is on every rank of a row layer: their mean is right.
    slopes = [name for name in SLOPES if name != "bias_gradient_reduced#2"]
    column, row = (*COLUMN, *SLOPES), (*ROW, *slopes)
    ce, re, sums = COLUMN_ERRORS, ROW_ERRORS, ("too_many_sums",)
    return [
        LayerRequirement("column.forward", *one, column, (2, 3, 1), ("y",), ce),
        LayerRequirement("column.backward", *one, column, (2, 4), errors=ce),
        AllReduceCountRequirement("column.sums", *one, sums, (2,), errors=ce, backward=1),
        LayerRequirement("row.forward", *other, row, (2, 3, 1), ("y",), re),
        LayerRequirement("row.backward", *other, row, (2, 4), errors=re),
        AllReduceCountRequirement("row.sums", *other, sums, (2,), errors=re, forward=1),
    ]
