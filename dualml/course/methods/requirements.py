"""Requirements on a loss scaler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import (
    ComputedRequirement,
    draw_array,
    max_finite,
    round_for_display,
    rounding_tolerance,
)
from dualml.course.exercise import RIGHT, Arrays, Difference, ExerciseCall, Flags, Requirement
from dualml.course.methods.rules import scaled_training
from dualml.course.mistakes import mistake_groups

SHAPES: dict[str, tuple[int, ...]] = {"a": (3,), "b": (2, 2), "c": ()}
#: Approximate size of the largest gradient before scaling; the smallest float16 number is 6e-8.
SMALL = 2e-6
UNSCALING, OVERFLOW, GROWTH = mistake_groups("methods", "unscaling", "overflow", "growth")
#: Kinds of overflow, and the weight whose gradient overflows.
KINDS = ((np.inf, "a"), (np.nan, "b"), (-np.inf, "c"))


@dataclass
class LossScalerRequirement(ComputedRequirement):
    """Requirement on some steps of gradient descent.

    Attributes:
        overflow_steps: steps (from 1) whose gradients overflow.
        interval: number of updates after which the scale grows.
        steps: number of steps.
    """

    name: str
    flags: Sequence[str]
    overflow_steps: Sequence[int] = ()
    interval: int = 1000
    steps: int = 5
    target: str = "LossScaler"

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make one call with a random scale, factors and weights, and float16 gradients that
        overflow in ``overflow_steps``."""
        scale = float(2 ** draw.integers(11, 14))
        hyper = {
            "scale": scale,
            # Every scale that can occur is exact in float16.
            "growth": float(draw.choice([1.5, 2.5, 3.0])),
            "backoff": float(draw.choice([0.25, 0.375, 0.625])),
            "interval": self.interval,
        }
        options = {"hyper": hyper, "steps": self.steps, "lr": float(draw.integers(2000, 9000))}
        arrays: dict[str, Any] = {
            "loss": np.asarray(round_for_display(draw.uniform(0.5, 3.0)), np.float32)
        }
        for name, shape in SHAPES.items():
            arrays[f"p/{name}"] = draw_array(draw, *shape)
        kinds = draw.permutation(len(KINDS))
        for step in range(1, self.steps + 1):
            for name, shape in SHAPES.items():
                g = scale * SMALL * draw.uniform(0.3, 1.0, shape) * draw.choice([-1, 1], shape)
                arrays[f"g/{step}/{name}"] = np.asarray(g, np.float16)
            if step in self.overflow_steps:
                value, name = KINDS[kinds[self.overflow_steps.index(step) % len(KINDS)]]
                g = arrays[f"g/{step}/{name}"].copy()
                g.reshape(-1)[-1] = value
                arrays[f"g/{step}/{name}"] = g
        return [ExerciseCall("scaler", self.target, options, [arrays])]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute the loss, and weights and scale after every step, for the one rank in the dtype
        ``number``, with the typical mistakes named in ``flags``."""
        return [scaled_training(call.options, call.arrays[0], flags, number)]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the float32 rule's own error, with a margin, for weights, and 1e-5 of their size
        for loss and scales."""
        exact, single = (self.compute(call, flags, n)[0] for n in (np.float64, np.float32))
        trained = {k: a for k, a in single.items() if "scale" not in k}
        most = rounding_tolerance([exact], [trained], lambda key: key[-1] in SHAPES)
        return [
            {k: np.asarray(1e-5 * max_finite(a) if "s" in k else most) for k, a in exact.items()}
        ]

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return scale and learning rate η of the wrong step, and the gradient's element if one is
        wrong; only the loss if that is."""
        step, _, name = difference.key.partition("/")
        if not name:
            return {"loss": float(call.arrays[0]["loss"])}
        right = self.expected(call)[0]
        before = right.get(f"{int(step) - 1}/scale", call.options["hyper"]["scale"])
        shown: dict[str, Any] = {f"scale_{int(step) - 1}": float(before), "η": call.options["lr"]}
        gradient = call.arrays[0].get(f"g/{step}/{name}")
        if gradient is not None and difference.index is not None:
            shown[f"g_{step}"] = float(gradient[difference.index])
        return shown


REQUIREMENTS: Sequence[Requirement] = (
    LossScalerRequirement("scaling.update", ("loss_divided", *UNSCALING)),
    LossScalerRequirement("scaling.overflow", OVERFLOW, overflow_steps=(2, 4, 5, 7), steps=8),
    LossScalerRequirement("scaling.growth", GROWTH, overflow_steps=(6, 12), interval=3, steps=14),
)
