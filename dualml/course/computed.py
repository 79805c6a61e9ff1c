"""Requirements whose one right answer a rule computes, up to rounding, and their random inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualml.course.differences import first_difference
from dualml.course.exercise import RIGHT, Array, Arrays, ExerciseCall, Flags, Requirement

Draw = np.random.Generator
#: Tolerance of a right answer: this multiple of the float32 rule's own error, and this many units
#: in the last place of the largest number.
MARGIN, PLACES = 16, 8
#: Difference, relative to the largest number, that no rounding in a few updates makes.
FAR_RTOL = 1e-3
#: Patterns of errors if ranks make different requests or one makes none, and the mistakes that they
#: show.
RANK_MISMATCH = (
    ("ranks disagree", "crossed"),
    ("CommunicationError: .*(waited|missing|no answer|failed on rank|is gone)", "one_sided"),
)


def round_for_display(value: float) -> float:
    """Round a number to three decimals, so that a person can calculate with it."""
    return float(round(value, 3))


def draw_array(draw: Draw, *shape: int) -> Any:
    """Draw a float32 array of this shape from the standard normal distribution, rounded to two
    decimals."""
    return np.asarray(draw.normal(size=shape).round(2), np.float32)


def draw_adam(draw: Draw) -> dict[str, Any]:
    """Draw ``lr``, ``betas`` and ``eps`` of Adam, with three decimals, as a dict."""
    return {
        "lr": draw_lr(draw),
        "betas": [round_for_display(draw.uniform(*ends)) for ends in ((0.6, 0.8), (0.85, 0.98))],
        "eps": round_for_display(draw.uniform(0.01, 0.2)),
    }


def draw_lr(draw: Draw) -> float:
    """Draw a learning rate from 0.02 to 0.2, with three decimals."""
    return round_for_display(draw.uniform(0.02, 0.2))


def max_finite(a: Any) -> float:
    """Return the largest absolute value of the finite numbers; 0 if there are none."""
    sizes = np.abs(np.asarray(a, np.float64))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))


def rounding_tolerance(
    exact: Sequence[Arrays],
    single: Sequence[Arrays],
    is_value: Callable[[str], bool] = lambda key: True,
) -> Array:
    """Return the tolerance of a right answer: the largest error of the float32 rule times `MARGIN`,
    plus `PLACES` units in the last place of the largest number; shape ().

    Args:
        exact, single: each rank's results by the rule in float64 and in float32.
        is_value: whether the numbers under a key count for the largest one.
    """
    with np.errstate(all="ignore"):
        off = [a - e[k] for e, s in zip(exact, single, strict=True) for k, a in s.items()]
    values = [a for e in exact for k, a in e.items() if is_value(k)]
    error, largest = (max(map(max_finite, each), default=0.0) for each in (off, values))
    return np.asarray(MARGIN * error + PLACES * np.spacing(np.float32(largest)))


def select_keys(arrays: Arrays, keys: Sequence[str]) -> Arrays:
    """Return the arrays under ``keys``; all of them if there are no keys."""
    return {key: a for key, a in arrays.items() if not keys or key in keys}


def is_far(arrays: Sequence[Arrays], predicted: Sequence[Arrays]) -> bool:
    """Return whether an answer is farther from a prediction than rounding in a few updates can be:
    by more than `FAR_RTOL` times (1 + the array's largest predicted number), or in a shape."""
    most = [
        {key: np.asarray(FAR_RTOL * (1 + max_finite(a))) for key, a in own.items()}
        for own in predicted
    ]
    return first_difference(arrays, predicted, most) is not None


class ComputedRequirement(Requirement):
    """Requirement with one right answer for every rank."""

    def compute(self, call: ExerciseCall, flags: Flags, number: Any) -> list[Arrays]:
        """Compute each rank's results in the dtype ``number``, with the typical mistakes named in
        ``flags``."""
        raise NotImplementedError

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Compute each rank's results in float64, with the typical mistakes named in ``flags``."""
        return self.compute(call, flags, np.float64)

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return one number for all results (`rounding_tolerance`)."""
        exact = self.compute(call, flags, np.float64)
        allowed = rounding_tolerance(exact, self.compute(call, flags, np.float32))
        return [dict.fromkeys(own, allowed) for own in exact]
