"""Requirement on a pipeline over remote calls: it must train as one process does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, ExerciseCall, Flags, Requirement
from dualml.course.lab1.requirements import MARGIN, PLACES, max_finite, round_for_display
from dualml.course.lab4 import rules
from dualml.course.lab4.requirements import (
    FEATURES,
    OUTPUTS,
    STEPS,
    WIDTH,
    Draw,
    draw_array,
)

SAMPLES, RANKS = 6, 3
FLAGS = ("stage_first_frozen", "stage_second_frozen", "stage_both_frozen", "rpc_first_unseen")


@dataclass
class RpcPipelineRequirement(Requirement):
    """Requirement on some updates, driven by rank 0."""

    name: str = "rpc.updates"
    target: str = "RpcPipeline"
    flags: Sequence[str] = FLAGS
    points: float = 1.0
    errors: Sequence[tuple[str, str]] = ()

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

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Compute rank 0's results in float64, with the mistakes ``flags``; the others have
        none."""
        return self.compute(call, flags, np.float64)

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the losses and weights of every update on rank 0 in the dtype ``number``, with
        the mistakes ``flags``; the other ranks return nothing."""
        own = call.arrays[0]
        if "stage_both_frozen" in flags:
            flags = flags | {"stage_first_frozen", "stage_second_frozen"}
        ranks = [
            {
                "weight": own["w0"],
                "bias": own["b0"],
                **{k: a for k, a in own.items() if k[:2] == "x/"},
            },
            {
                "weight": own["w1"],
                "bias": own["b1"],
                **{k: a for k, a in own.items() if k[:2] == "y/"},
            },
        ]
        options = {**call.options, "micro_batches": 1}
        out: dict[str, Any] = {}
        if "rpc_first_unseen" in flags:
            return [
                train_without_first_update(options, ranks, number),
                *({} for _ in range(RANKS - 1)),
            ]
        made = rules.train_stages(options, ranks, flags, number)
        for step in range(1, STEPS + 1):
            out[f"{step}/loss"] = made[1][f"{step}/loss"]
            for i in (0, 1):
                out |= {f"{step}/{i}/{n}": made[i][f"{step}/{n}"] for n in ("weight", "bias")}
        return [out, *({} for _ in range(RANKS - 1))]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results of rank 0, from the float32 rule's own error."""
        exact, single = (self.compute(call, flags, n)[0] for n in (np.float64, np.float32))
        off = max(max_finite(single[k] - exact[k]) for k in exact)
        largest = max(map(max_finite, exact.values()))
        most = np.asarray(MARGIN * off + PLACES * np.spacing(np.float32(largest)))
        return [dict.fromkeys(exact, most), *({} for _ in range(RANKS - 1))]


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
    for step in range(2, STEPS + 1):
        out[f"{step}/loss"] = made[1][f"{step - 1}/loss"]
        for i in (0, 1):
            out |= {f"{step}/{i}/{n}": made[i][f"{step - 1}/{n}"] for n in ("weight", "bias")}
    return out


def rpc_requirements() -> list[Requirement]:
    """Return the requirement on the pipeline over remote calls."""
    return [RpcPipelineRequirement()]
