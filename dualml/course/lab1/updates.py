"""Requirements of Lab 1 on some updates with random values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.computed import ComputedRequirement, Draw, draw_lr
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Array,
    Arrays,
    Difference,
    ExerciseCall,
    Flags,
)
from dualml.course.lab1.hyperparameters import first_update, settings_of
from dualml.course.lab1.trajectory import iterate_updates, trajectory

#: Shapes of the parameters: two equal ones, for state that is shared by mistake; a name that
#: MindSpore's own optimizers exempt from decay; one number (of shape (1,), because MindSpore's step
#: counter turns shape () into (1,)).
SHAPES: dict[str, tuple[int, ...]] = {"weight": (2, 3), "twin": (2, 3), "beta": (3,), "scale": (1,)}
#: Shapes of the parameters of two optimizers, and number of updates of a third one, which takes
#: over the first one's parameters.
OPTIMIZER_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "first": {"weight": (2, 3), "beta": (3,)},
    "second": {"weight_2": (2, 3), "beta_2": (3,)},
}
STEPS, THIRD_STEPS = 5, 3
#: Difference, as a fraction of the largest number, beyond which an update is wrong and not rounded:
#: in the first update, and in later ones, to which rounding is carried on.
COARSE, LATER_COARSE = 1e-3, 1e-2
#: Axes on which a mistake may act alone; those of parameters alone where there are several
#: optimizers or groups.
PLACES = (
    "step=0",
    "step=!0",
    "step=-1",
    "tensor=0",
    "tensor=!0",
    "tensor=-1",
    "tensor=!-1",
    "dimension=1",
    "dimension=2",
    "row=0",
    "row=!0",
    "row=-1",
    "row=!-1",
)
GROUP_PLACES = (
    "group=0",
    "group=!0",
    "group=-1",
    "group=!-1",
    "member=0",
    "member=!0",
    "member=-1",
)


@dataclass
class OptimizerRequirement(ComputedRequirement):
    """Requirement on some updates of four parameters.

    Attributes:
        hyper: function that draws the hyperparameters.
        rates: whether every update has its own learning rate.
        settings: function that draws the hyperparameters of an update from those of the update
            before; None: they stay.
        groups: function that draws the hyperparameters of two parameters that are groups of their
            own, from those of the others; None: there are no groups.
        missing: whether a parameter has no gradient in every other update.
        zero: whether a parameter's gradient is 0 in every other update.
        rewritten: whether all gradients are written into the same memory.
        several: whether there are three optimizers, of which the third one takes over the first
            one's parameters.
        mode: MindSpore's mode: ``pynative`` or ``graph``.
    """

    name: str
    target: str
    hyper: Callable[[Draw], dict[str, Any]]
    flags: Sequence[str] = ()
    rates: bool = False
    settings: Callable[[Draw, Mapping[str, Any]], dict[str, Any]] | None = None
    groups: Callable[[Draw, Mapping[str, Any]], dict[str, Any]] | None = None
    missing: bool = False
    zero: bool = False
    rewritten: bool = True
    several: bool = False
    mode: str = "pynative"
    errors: Sequence[tuple[str, str]] = ()
    otherwise: str = ""
    only_there: Flags = RIGHT
    places: Sequence[str] = PLACES
    placed: Sequence[str] = ()

    def calls(self, draw: Draw) -> list[ExerciseCall]:
        """Make one call of `STEPS` updates (`THIRD_STEPS` more with ``several``) with random
        hyperparameters, parameters and gradients, float32 of two decimals; gradients are missing or
        zero as the attributes say."""
        options: dict[str, Any] = {
            "hyper": self.hyper(draw),
            "steps": STEPS,
            "mode": self.mode,
            "rewritten": self.rewritten,
            "reloaded": True,
        }
        self.draw_settings(draw, options)
        shapes = SHAPES
        if self.several:
            shapes = {**OPTIMIZER_SHAPES["first"], **OPTIMIZER_SHAPES["second"]}
            self.add_optimizers(draw, options)
        arrays: dict[str, Any] = {f"p/{n}": draw.normal(size=s) for n, s in shapes.items()}
        for step in range(1, options["steps"] + 1):
            for name, shape in shapes.items():
                g = draw.normal(size=shape)
                if not (self.missing and name in ("twin", "scale") and step % 2):
                    arrays[f"g/{step}/{name}"] = g
        for name in ("twin", "beta") if self.zero else ():
            for step in range(2, STEPS + 1, 2):
                arrays[f"g/{step}/{name}"] *= 0
        # A gradient of exactly 0 would distinguish a missing epsilon from a tiny one.
        drawn = {
            n: np.where((a.round(2) == 0) & (a != 0), 0.05, a.round(2)) for n, a in arrays.items()
        }
        rounded_arrays = {n: a.astype(np.float32) for n, a in drawn.items()}
        return [ExerciseCall("optimizer", self.target, options, [rounded_arrays])]

    def draw_settings(self, draw: Draw, options: dict[str, Any]) -> None:
        """Add ``rates``, ``settings`` and ``groups`` to the options of a call."""
        hyper = options["hyper"]
        if self.rates:
            options["rates"] = [draw_lr(draw) for _ in range(STEPS)]
            hyper["lr"] = options["rates"][0]
        if self.settings is not None:
            each = [hyper]
            for _ in range(STEPS - 1):
                each.append(self.settings(draw, each[-1]))
            options["settings"] = each
        if self.groups is not None:
            options["groups"] = {name: self.groups(draw, hyper) for name in ("beta", "scale")}

    def add_optimizers(self, draw: Draw, options: dict[str, Any]) -> None:
        """Add ``optimizers`` to the options of a call: two side by side, and one that takes over
        the first one's parameters."""
        names = {which: list(shapes) for which, shapes in OPTIMIZER_SHAPES.items()}
        steps = STEPS + THIRD_STEPS
        options["steps"] = steps
        options["optimizers"] = [
            {"names": names["first"], "hyper": options["hyper"], "first": 1, "last": STEPS},
            {"names": names["second"], "hyper": self.hyper(draw), "first": 1, "last": STEPS},
            {"names": names["first"], "hyper": self.hyper(draw), "first": STEPS + 1, "last": steps},
        ]

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute ``3/w``, parameter w after update 3, for all parameters and updates of the one
        rank, in the dtype ``number``, with the typical mistakes named in ``flags``."""
        return [trajectory(self.target, call.options, call.arrays[0], flags, number)]

    def rules_out(self, call: ExerciseCall, answer: Answer, flags: Flags) -> bool:
        """Return whether the answer differs by more than rounding (`COARSE`, `LATER_COARSE`) from
        the rule with these mistakes; the first update in which it does ends the computation."""
        arrays = answer.arrays[0]
        with np.errstate(all="ignore"):
            updates = iterate_updates(self.target, call.options, call.arrays[0], flags)
            return any(is_far(arrays.get(key), expected, key) for key, expected in updates)

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return the hyperparameters, those of the wrong update where they are others, the
        parameter's element before it, and its gradients so far; empty if the difference has no
        element."""
        step, _, name = difference.key.partition("/")
        arrays, index = call.arrays[0], difference.index
        if index is None or f"p/{name}" not in arrays:
            return {}
        before = arrays[f"p/{name}"]
        if int(step) > 1:
            before = self.expected(call)[0][f"{int(step) - 1}/{name}"]
        hyper = call.options["hyper"]
        used = settings_of(call.options, int(step), name)
        numbers = {f"{k}_{step}": v for k, v in used.items() if v != hyper[k]}
        numbers[f"θ_{int(step) - 1}"] = float(before[index])
        for at in range(first_update(call.options, int(step), name), int(step) + 1):
            g = arrays.get(f"g/{at}/{name}")
            numbers[f"g_{at}"] = None if g is None else float(g[index])
        return {**hyper, **numbers}


def is_far(found: Array | None, expected: Array, key: str) -> bool:
    """Return whether a parameter after an update differs from the expected one by more than
    rounding: in its shape, in which numbers are finite, or by more than `COARSE` (``key`` ``1/…``,
    the first update) or `LATER_COARSE` times (1 + the largest number)."""
    if found is None or found.shape != expected.shape:
        return True
    off, sizes = abs(found - expected), abs(expected)
    most = (COARSE if key.startswith("1/") else LATER_COARSE) * (1 + sizes.max())
    if off.max() <= most:  # the usual case; never with numbers that are not finite
        return False
    finite = np.isfinite(expected)
    if (finite != np.isfinite(found)).any():
        return True
    return bool((off[finite] > most).any()) if np.isfinite(most) else False
