"""Requirement on a pipeline over remote calls: it must train as one process does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, Draw, draw_array, round_for_display
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.lab4.explained import explain_update
from dualml.course.lab4.requirements import FEATURES, OUTPUTS, STEPS, WIDTH
from dualml.course.lab4.stages import train_stages
from dualml.course.mistakes import mistake_groups

SAMPLES, RANKS = 6, 3
(FLAGS,) = mistake_groups("lab4", "rpc")
#: Mistake → those of the stages that it consists of.
COMPOSITE_MISTAKES: dict[str, Flags] = {
    "stage_both_frozen": frozenset({"stage_first_frozen", "stage_second_frozen"}),
    "rpc_first_unseen": frozenset({"stage_first_frozen@step=0", "stage_second_frozen@step=0"}),
}
PLACES = ("stage=0", "stage=1", "step=0", "step=!0", "step=-1")
#: Patterns of errors, and the mistakes that they show.
ERRORS = (
    ("'Future' object|is a Future", "rpc_not_awaited"),
    ("PyRRef", "rpc_reference_passed"),
    (r"can't call localValue\(\)", "rpc_wrong_worker"),
    ("graphTask_ INTERNAL ASSERT", "rpc_plain_backward"),
    ("Could not find autograd context", "rpc_context_gone"),
    ("'context_id'", "rpc_context_missing"),
    (r"backward\(\): incompatible function arguments", "rpc_backward_arguments"),
    ("object has no attribute 'owner'", "rpc_references_nested"),
    ("cannot be multiplied", "rpc_stages_swapped"),
    (r"forward\(…\): ", "rpc_outputs"),
    (r"step\(…\): ", "stage_loss_missing"),
    ("RPC ran for more than set timeout", "rpc_no_answer"),
)


@dataclass
class RpcPipelineRequirement(ComputedRequirement):
    """Requirement on some updates, driven by rank 0."""

    name: str = "rpc.updates"
    target: str = "RpcPipeline"
    flags: Sequence[str] = FLAGS
    places: Sequence[str] = PLACES
    errors: Sequence[tuple[str, str]] = ERRORS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call on `RANKS` ranks, with both layers and the samples of `STEPS` updates on
        rank 0."""
        lr = round_for_display(draw.uniform(0.1, 0.4))
        options = {"comm": True, "hyper": {"lr": lr}, "lr": lr, "steps": STEPS}
        arrays: dict[str, Any] = {
            "w0": draw_array(draw, WIDTH, FEATURES),
            "b0": draw_array(draw, WIDTH),
            "w1": draw_array(draw, OUTPUTS, WIDTH),
            "b1": draw_array(draw, OUTPUTS),
        }
        for step in range(1, STEPS + 1):
            arrays[f"x/{step}"] = draw_array(draw, SAMPLES, FEATURES)
            arrays[f"y/{step}"] = draw_array(draw, SAMPLES, OUTPUTS)
        return [
            ExerciseCall("remote", self.target, options, [arrays, *({} for _ in range(RANKS - 1))])
        ]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the losses and weights of every update on rank 0 in the dtype ``number``, with
        the typical mistakes named in ``flags``; the other ranks return nothing."""
        for name, parts in COMPOSITE_MISTAKES.items():
            if name in flags:
                flags = flags | parts
        options, ranks = stages_of(call)
        out = join_stages(train_stages(options, ranks, flags, number))
        out["outputs"] = outputs_of(out, ranks[0][f"x/{STEPS}"].astype(number))
        return [out, *({} for _ in range(RANKS - 1))]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return a missing loss, or the first difference, with the mistake that a stage was never
        called where it lives, or that only the outputs are wrong; None if there is neither."""
        arrays = answer.arrays[0]
        if "1/none" in arrays:
            return Difference(0, "1/loss", None, "None", "float"), ("stage_loss_missing",)
        wrong = super().problem(call, answer)
        if wrong is not None and any(int(arrays.get(f"calls/{i}", 1)) == 0 for i in (0, 1)):
            return wrong[0], ("rpc_stage_copied",)
        if wrong is not None and wrong[0].key == "outputs":
            return wrong[0], ("rpc_outputs",)
        return wrong

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update and its gradient, or the errors
        of the outputs for a loss; for an output of the trained model the sample's activations, and
        the output's weights and bias; empty if the difference has no element."""
        step, _, rest = difference.key.partition("/")
        if difference.index is None or not (step.isdigit() or step == "outputs"):
            return {}
        if step == "outputs":
            return output_inputs(self.expected(call)[0], call.arrays[0], difference.index)
        stage, _, name = rest.rpartition("/")
        update = explain_update(*stages_of(call), int(step))
        return update.numbers(int(stage or 0), name, difference.index)


def stages_of(call: ExerciseCall) -> tuple[dict[str, Any], list[Arrays]]:
    """Return the options of a call, and the parameters and samples of each stage, as two ranks of a
    pipeline with one micro-batch would have them."""
    own = call.arrays[0]
    ranks: list[Arrays] = [
        {"weight": own[f"w{i}"], "bias": own[f"b{i}"]}
        | {key: a for key, a in own.items() if key.startswith(data)}
        for i, data in enumerate(("x/", "y/"))
    ]
    return {**call.options, "micro_batches": 1}, ranks


def join_stages(made: Sequence[Arrays]) -> dict[str, Any]:
    """Return the results of both stages as those of one process: ``3/loss``, and ``3/0/weight`` of
    stage 0 after update 3."""
    out: dict[str, Any] = {}
    for step in range(1, STEPS + 1):
        out[f"{step}/loss"] = made[1][f"{step}/loss"]
        for i in (0, 1):
            out |= {f"{step}/{i}/{n}": made[i][f"{step}/{n}"] for n in ("weight", "bias")}
    return out


def outputs_of(trained: Arrays, x: Any) -> Any:
    """Return the outputs of the trained model for samples ``x``, one per row."""
    return activations_of(trained, x) @ trained[f"{STEPS}/1/weight"].T + trained[f"{STEPS}/1/bias"]


def activations_of(trained: Arrays, x: Any) -> Any:
    """Return what stage 0 of the trained model sends for samples ``x``, one per row."""
    z = x @ trained[f"{STEPS}/0/weight"].T + trained[f"{STEPS}/0/bias"]
    return z / (1 + np.abs(z))


def output_inputs(trained: Arrays, given: Arrays, index: tuple[int, ...]) -> dict[str, Any]:
    """Return from what an output of the trained model is computed: the sample's activations h, and
    the output's weights W and bias b."""
    i, j = index
    h = activations_of(trained, given[f"x/{STEPS}"][i].astype(np.float64))
    w, b = trained[f"{STEPS}/1/weight"][j], trained[f"{STEPS}/1/bias"][j]
    return {"h": tuple(map(float, h)), "W": tuple(map(float, w)), "b": float(b)}


def rpc_requirements() -> list[Requirement]:
    """Return the requirement on the pipeline over remote calls."""
    return [RpcPipelineRequirement()]
