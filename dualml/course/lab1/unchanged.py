"""Requirements of Lab 1 on what an optimizer is given and must leave as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import Draw
from dualml.course.exercise import Answer, Arrays, Difference, ExerciseCall, Flags
from dualml.course.lab1.updates import OptimizerRequirement


@dataclass
class UnchangedRequirement(OptimizerRequirement):
    """Requirement on what an optimizer is given and leaves as it is: gradients, the list of the
    parameters, and the hyperparameters.

    Attributes:
        revealed: mistakes that the answers show by themselves.
    """

    revealed: Sequence[str] = (
        "gradient_changed",
        "gradient_cleared",
        "parameters_changed",
        "settings_changed",
    )

    def draw_settings(self, draw: Draw, options: dict[str, Any]) -> None:
        """Add to the options of a call that what the optimizer was given is returned, too."""
        super().draw_settings(draw, options)
        options["unchanged"] = True

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Return ``3/w.grad``, the gradient of parameter w after update 3, ``parameters``, the
        number of each parameter in the list, and ``lr``, the learning rate, in the end."""
        arrays = call.arrays[0]
        names = [key[2:] for key in arrays if key.startswith("p/")]
        found: dict[str, Any] = {}
        for step in range(1, call.options["steps"] + 1):
            for name in names:
                found[f"{step}/{name}.grad"] = arrays[f"g/{step}/{name}"].astype(number)
        found["parameters"] = np.arange(len(names), dtype=number)
        found["lr"] = np.asarray(call.options["hyper"]["lr"], number)
        return [found]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first difference, and the mistake that it shows."""
        wrong = super().problem(call, answer)
        if wrong is None:
            return None
        difference = wrong[0]
        if difference.key in ("parameters", "lr"):
            which = "parameters_changed" if difference.key == "parameters" else "settings_changed"
            return difference, (which,)
        left = answer.arrays[0].get(difference.key)
        cleared = left is None or not np.any(left)
        return difference, ("gradient_cleared" if cleared else "gradient_changed",)
