"""What a measurement of an all-reduce has to give, on a communicator whose times are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.course.exercise import (
    RIGHT,
    Answer,
    Array,
    Arrays,
    Call,
    Difference,
    Flags,
    Requirement,
)
from dualml.course.judge import WIDER
from dualml.course.lab2.rules import seconds

SIZES = (200_000, 1_600_000)
#: A measurement may be so far off: a share of the time, and seconds in which a busy machine wakes a
#: sleeping process. What the mistakes add is several times as much.
SHARE, WAKING_S = 0.25, 0.006
FIRST_S, DISTURBED_S, LATE_S = 0.2, 0.12, 0.06
#: How it ends where a method of the communicator is called that the exercise does not have.
OTHER = ("AttributeError: comm has no .* in this exercise", "other_collective")


@dataclass
class Measured(Requirement):
    """Seconds of each size on two ranks.

    Attributes:
        late: seconds that the other rank comes too late.
    """

    name: str
    late: float
    target: str = "measure"
    flags: Sequence[str] = ("measure_milliseconds", "measure_elements")
    points: float = 1.0
    follows: bool = True
    #: Beside a busy program a right measurement can be disturbed: it is believed the third time.
    tries: int = 3
    errors: Sequence[tuple[str, str]] = (("ranks disagree", "crossed"), OTHER)

    def calls(self, draw: np.random.Generator) -> list[Call]:
        options = {
            "comm": True,
            "alpha": float(draw.uniform(0.015, 0.022)),
            "beta": float(draw.uniform(1.5e-8, 2.5e-8)),
            "first": FIRST_S,
            "disturbed": DISTURBED_S,
            "late": self.late,
            "sizes": list(SIZES),
            "hyper": {},
        }
        return [Call("measured", self.target, options, [{}, {}])]

    def expected(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        size = 4 if "measure_elements" in flags else 1
        unit = 1000.0 if "measure_milliseconds" in flags else 1.0
        times = np.array([unit * seconds(call.options, size * s) for s in SIZES])
        return [{"seconds": times}, {"seconds": times}]

    def tolerance(self, call: Call, flags: Flags = RIGHT) -> list[Arrays]:
        times = self.expected(call, flags)[0]["seconds"]
        if flags:  # what a mistake explains may be `WIDER` times as far off
            times = times / WIDER
        waking = 0.0 if "measure_milliseconds" in flags else WAKING_S
        return [{"seconds": SHARE * times + waking} for _ in range(2)]

    def problem(self, call: Call, answer: Answer) -> tuple[Difference, tuple[str, ...]] | None:
        found = super().problem(call, answer)
        if found is None or found[0].index is None:
            return found
        right = self.expected(call)[0]["seconds"]
        return found[0], self.mistake(np.asarray(answer.arrays[0]["seconds"], np.float64), right)

    def mistake(self, seen: Array, right: Array) -> tuple[str, ...]:
        """What the times that are too long have in common."""
        more, ratio = seen - right, seen / right

        def about(extra: float, within: float) -> bool:
            return bool(np.all(np.abs(more - extra) < within))

        if self.late and about(self.late, 0.02):
            return ("measure_unsynchronised",)
        if about(DISTURBED_S, 0.03):
            return ("measure_maximum",)
        if about(FIRST_S, 0.04):
            return ("measure_first",)
        if np.all((more > 0.01) & (more < FIRST_S)) and np.ptp(more) < 0.03:
            return ("measure_mean",)
        if np.all((ratio > 2.5) & (ratio < 100)) and np.all(ratio < 1.6 * ratio.min()):
            return ("measure_total",)
        return ()

    def inputs(self, call: Call, difference: Difference) -> dict[str, Any]:
        o = call.options
        return {"α": o["alpha"], "β": o["beta"], "bytes": SIZES[(difference.index or (0,))[0]]}
