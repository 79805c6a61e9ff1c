"""Requirements on pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from dualml.course.computed import (
    ComputedRequirement,
    Draw,
    draw_array,
    round_for_display,
)
from dualml.course.differences import first_difference
from dualml.course.exercise import (
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.lab4.explained import explain_update
from dualml.course.lab4.layer_requirements import argument_change, is_near, layer_requirements
from dualml.course.lab4.stage_search import combine_sides, first_update
from dualml.course.lab4.stages import train_stages
from dualml.course.mistakes import mistake_groups

FEATURES, WIDTH, OUTPUTS, STEPS = 4, 3, 2, 3
#: Samples of a micro-batch; no other number of the exercise is the same as it.
SAMPLES = 5
STAGES, LOSSES = mistake_groups("lab4", "stages", "losses")
#: Patterns of errors, and the mistakes that they show.
ERRORS = (
    (r"receives (\d+ elements|\w+) from rank \d+ and expects", "stage_message_shape"),
    (r"send/\d+ is object|One of the differentiated Tensors", "stage_cut_no_gradient"),
    ("element 0 of tensors does not require grad", "stage_detached"),
    ("implicitly created only for scalar", "stage_backward_plain"),
    ("backward through the graph a second time", "stage_backward_again"),
    ("modified by an inplace operation.*is output 0 of", "stage_step_each"),
    ("modified by an inplace operation", "stage_one_buffer"),
    ("Can not find top cell|top cell for backward", "stage_vjp"),
    (r"optimizer takes \d+ gradients", "stage_gradients_left"),
    (r"train_step\(…\): ", "stage_loss_missing"),
    ("ranks disagree", "stage_waits"),
    ("CommunicationError: .*(waited|missing|no answer|failed on rank|is gone)", "stage_waits"),
)
SIDES = ("rank=0", "rank=1")
ENDS = ("micro_batch=0", "micro_batch=-1", "micro_batch=!0", "micro_batch=!-1")
PLACES = (*SIDES, "step=0", "step=!0")


@dataclass
class StageRequirement(ComputedRequirement):
    """Requirement on a pipeline of two stages with one right answer for each of them.

    Attributes:
        micro_batches: number of micro-batches.
    """

    name: str
    micro_batches: int = 1
    target: str = "train_step"
    flags: Sequence[str] = (*STAGES, *LOSSES)
    errors: Sequence[tuple[str, str]] = ERRORS

    @property
    def places(self) -> Sequence[str]:  # type: ignore[override]
        """Places at which a mistake may act alone; with several micro-batches also in the first or
        the last of them."""
        if self.micro_batches == 1:
            return PLACES
        return (*PLACES, *ENDS, *(f"{side}&{end}" for side, end in product(SIDES, ENDS)))

    def further_candidates(
        self, calls: Sequence[ExerciseCall], answers: Sequence[Answer]
    ) -> Iterator[Flags]:
        """Yield sets of two or three mistakes that explain the first update: at most one that acts
        on each rank, and one about the loss."""
        yield from combine_sides(calls[0], answers[0].arrays, STAGES, LOSSES)

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make a call of two pipeline stages, each with its own layer, over `STEPS` updates with
        random samples."""
        hyper = {
            "lr": round_for_display(draw.uniform(0.1, 0.4)),
            "momentum": round_for_display(draw.uniform(0.4, 0.7)),
            "micro_batches": self.micro_batches,
        }
        options = {"comm": True, "hyper": hyper, **hyper, "steps": STEPS, "width": WIDTH}
        samples = SAMPLES * self.micro_batches
        arrays: list[dict[str, Any]] = [
            {"weight": draw_array(draw, WIDTH, FEATURES), "bias": draw_array(draw, WIDTH)},
            {"weight": draw_array(draw, OUTPUTS, WIDTH), "bias": draw_array(draw, OUTPUTS)},
        ]
        for step in range(1, STEPS + 1):
            arrays[0][f"x/{step}"] = draw_array(draw, samples, FEATURES)
            arrays[1][f"y/{step}"] = draw_array(draw, samples, OUTPUTS)
        return [ExerciseCall("stages", self.target, options, arrays)]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results in the dtype ``number``, with the typical mistakes named in
        ``flags``."""
        return list(train_stages(call.options, call.arrays, flags, number))

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether the first update, or a later one, is clearly another with these
        mistakes."""
        if not is_near(answer.arrays, first_update(call, flags)):
            return True
        return not is_near(answer.arrays, self.expected(call, flags))

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return an argument that was changed, a missing loss, the first difference in time, or a
        loss that the wrong rank returns; None if there is none of these."""
        for rank, arrays in enumerate(answer.arrays):
            found = argument_change(call, rank, arrays)
            if found is not None:
                return found, ("argument_changed",)
        for step in range(1, STEPS + 1):
            if f"{step}/none" in answer.arrays[1]:
                return Difference(1, f"{step}/loss", None, "None", "float"), ("stage_loss_missing",)
        wrong = first_in_time(answer.arrays, self.expected(call), self.tolerance(call))
        if wrong is not None:
            return wrong, ()
        if "1/loss" in answer.arrays[0]:
            value = float(answer.arrays[0]["1/loss"])
            return Difference(0, "1/loss", None, value, "None"), ("stage_loss_everywhere",)
        return None

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update and its gradients of the
        micro-batches' mean losses, or these losses; empty if the difference has no element."""
        step, _, name = difference.key.partition("/")
        if difference.index is None or not step.isdigit():
            return {}
        update = explain_update(call.options, call.arrays, int(step))
        return update.numbers(difference.rank, name, difference.index)


def first_in_time(
    arrays: Sequence[Arrays], expected: Sequence[Arrays], tolerance: Sequence[Arrays]
) -> Difference | None:
    """Return the first difference of the earliest update, the loss before the weights; None if
    there is none. Keys are ``UPDATE/NAME``."""
    found = []
    for rank, own in enumerate(expected):
        wrong = first_difference([arrays[rank]], [own], [tolerance[rank]])
        if wrong is not None:
            step, _, name = wrong.key.partition("/")
            found.append(((int(step), name != "loss", rank), replace(wrong, rank=rank)))
    return min(found, key=lambda each: each[0])[1] if found else None


def requirements() -> list[Requirement]:
    """Return the requirements on stages and layers."""
    return [
        StageRequirement("stages.whole"),
        StageRequirement("stages.micro", micro_batches=4),
        *layer_requirements(),
    ]
