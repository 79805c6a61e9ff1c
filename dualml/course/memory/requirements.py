"""Requirements on ZeRO stage 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.differences import first_difference
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.lab1.requirements import MARGIN, PLACES, max_finite, round_for_display
from dualml.course.memory.rules import zero_adam

STEPS = 4
#: A number of elements divisible by 1, 2, 3 and 4 ranks.
ELEMENTS = 24
FLAGS = (
    "own_gradient",
    "summed",
    "divided_twice",
    "zero_step_frozen",
    "zero_uncorrected",
    "not_gathered",
    "changes_gathered",
    "parts_reversed",
    "gathered_backwards",
)


@dataclass
class ZeroRequirement(Requirement):
    """Requirement on some updates on several ranks.

    Attributes:
        aspect: results that count: ``parameters``, ``state`` or ``sent``.
    """

    name: str
    ranks: Sequence[int]
    aspect: str
    flags: Sequence[str] = ()
    target: str = "ZeroAdam"
    points: float = 1.0
    errors: Sequence[tuple[str, str]] = ()

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make a call for each number of ranks in ``ranks``."""
        return [self.make_call(draw, n) for n in self.ranks]

    def make_call(self, draw: np.random.Generator, ranks: int) -> ExerciseCall:
        """Make a call of `STEPS` updates on this number of ranks: equal parameters, other gradients
        on each, and random hyperparameters of Adam."""
        hyper = {
            "lr": round_for_display(draw.uniform(0.02, 0.2)),
            "betas": [
                round_for_display(draw.uniform(0.6, 0.8)),
                round_for_display(draw.uniform(0.85, 0.98)),
            ],
            "eps": round_for_display(draw.uniform(0.01, 0.2)),
        }
        p = draw.normal(size=ELEMENTS).round(2).astype(np.float32)
        arrays = [
            {
                "p": p,
                **{
                    f"g/{s}": draw.normal(size=ELEMENTS).round(2).astype(np.float32)
                    for s in range(1, STEPS + 1)
                },
            }
            for _ in range(ranks)
        ]
        return ExerciseCall(
            "zero", self.target, {"hyper": hyper, "steps": STEPS, "comm": True}, arrays
        )

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Compute each rank's results of ``aspect`` in float64, with the mistakes ``flags``."""
        return [self.select_keys(a) for a in zero_adam(call.options, call.arrays, flags)]

    def select_keys(self, arrays: Arrays) -> Arrays:
        """Return the arrays that belong to ``aspect``: ``3/parameters``, ``m`` and ``v``, or
        ``sent/NAME``."""

        def kind(key: str) -> str:
            """Return the aspect to which a key belongs."""
            return "state" if key in ("m", "v") else key.partition("/")[0 if "sent" in key else 2]

        return {key: a for key, a in arrays.items() if kind(key) == self.aspect}

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results, from the float32 rule's own error."""
        exact = zero_adam(call.options, call.arrays, flags)
        single = zero_adam(call.options, call.arrays, flags, np.float32)
        with np.errstate(all="ignore"):
            off = [np.abs(s[k] - e[k]) for s, e in zip(single, exact, strict=True) for k in e]
        largest = max(max_finite(a) for e in exact for k, a in e.items() if "sent" not in k)
        most = MARGIN * max(map(max_finite, off)) + PLACES * np.spacing(np.float32(largest))
        return [dict.fromkeys(e, np.asarray(most)) for e in exact]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, with ``whole_state`` if a rank keeps the state of all
        elements; None if there is none."""
        wrong = first_difference(answer.arrays, self.expected(call), self.tolerance(call))
        if wrong is None:
            return None
        whole = self.aspect == "state" and wrong.index is None and ELEMENTS > 0
        seen = answer.arrays[wrong.rank].get(wrong.key)
        if whole and call.ranks > 1 and seen is not None and np.size(seen) == ELEMENTS:
            return wrong, ("whole_state",)
        return wrong, ()

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the parameter's element before the wrong update, and every rank's gradient in it;
        empty unless a parameter's element is wrong."""
        step, _, name = difference.key.partition("/")
        if name != "parameters" or not difference.index:
            return {}
        i = difference.index[0]
        before = call.arrays[0]["p"]
        if int(step) > 1:
            before = self.expected(call)[0][f"{int(step) - 1}/parameters"]
        shown: dict[str, Any] = {f"θ_{int(step) - 1}": float(before[i])}
        for rank, arrays in enumerate(call.arrays):
            shown[f"g_{step} (rank {rank})"] = float(arrays[f"g/{step}"][i])
        return shown


REQUIREMENTS: Sequence[Requirement] = (
    ZeroRequirement(
        "zero.alone",
        (1,),
        "parameters",
        ("zero_step_frozen", "zero_uncorrected", "changes_gathered"),
    ),
    ZeroRequirement("zero.update", (2, 3, 4), "parameters", FLAGS),
    ZeroRequirement("zero.state", (2, 4), "state", FLAGS[:3]),
    ZeroRequirement("zero.sent", (2, 4), "sent", ("all_reduced", "not_gathered")),
)
