"""Requirement on a pipeline over remote calls: it must train as one process does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dualml.course.computed import ComputedRequirement, Draw, draw_array, round_for_display
from dualml.course.exercise import RIGHT, Arrays, ExerciseCall, Flags, Requirement
from dualml.course.lab4 import rules
from dualml.course.lab4.requirements import FEATURES, OUTPUTS, STEPS, WIDTH

SAMPLES, RANKS = 6, 3
FLAGS = ("stage_first_frozen", "stage_second_frozen", "stage_both_frozen", "rpc_first_unseen")


@dataclass
class RpcPipelineRequirement(ComputedRequirement):
    """Requirement on some updates, driven by rank 0."""

    name: str = "rpc.updates"
    target: str = "RpcPipeline"
    flags: Sequence[str] = FLAGS

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call on `RANKS` ranks, with both layers and the samples of `STEPS` updates on
        rank 0."""
        options = {
            "comm": True,
            "hyper": {},
            "lr": round_for_display(draw.uniform(0.1, 0.4)),
            "steps": STEPS,
        }
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
        the mistakes ``flags``; the other ranks return nothing."""
        own = call.arrays[0]
        if "stage_both_frozen" in flags:
            flags = flags | {"stage_first_frozen", "stage_second_frozen"}
        ranks = [
            {"weight": own[f"w{i}"], "bias": own[f"b{i}"]}
            | {key: a for key, a in own.items() if key.startswith(data)}
            for i, data in enumerate(("x/", "y/"))
        ]
        options = {**call.options, "micro_batches": 1}
        if "rpc_first_unseen" in flags:
            out = train_without_first_update(options, ranks, number)
        else:
            out = join_stages(rules.train_stages(options, ranks, flags, number), STEPS)
        return [out, *({} for _ in range(RANKS - 1))]


def join_stages(made: Sequence[Arrays], steps: int, first: int = 1) -> dict[str, Any]:
    """Return the results of both stages as those of one process: ``3/loss``, and ``3/0/weight`` of
    stage 0 after update 3, for ``steps`` updates, the first with the number ``first``."""
    out: dict[str, Any] = {}
    for step in range(1, steps + 1):
        at = step + first - 1
        out[f"{at}/loss"] = made[1][f"{step}/loss"]
        for i in (0, 1):
            out |= {f"{at}/{i}/{n}": made[i][f"{step}/{n}"] for n in ("weight", "bias")}
    return out


def train_without_first_update(
    options: dict[str, Any], ranks: Sequence[Arrays], number: Any
) -> Arrays:
    """Compute a training whose first update changes nothing, while the others are right."""
    first = rules.train_stages({**options, "steps": 1}, ranks, RIGHT, number)
    late = [
        {
            k if "/" not in k else f"{k[:2]}{int(k[2:]) - 1}": a
            for k, a in own.items()
            if "/" not in k or k[2:] != "1"
        }
        for own in ranks
    ]
    made = rules.train_stages({**options, "steps": STEPS - 1}, late, RIGHT, number)
    out: dict[str, Any] = {"1/loss": first[1]["1/loss"]}
    for i in (0, 1):
        out |= {f"1/{i}/{n}": ranks[i][n].astype(number) for n in ("weight", "bias")}
    return out | join_stages(made, STEPS - 1, first=2)


def rpc_requirements() -> list[Requirement]:
    """Return the requirement on the pipeline over remote calls."""
    return [RpcPipelineRequirement()]
