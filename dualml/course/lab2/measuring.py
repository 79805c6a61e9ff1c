"""Requirements on the measurement of an all-reduce, on a communicator whose times are known."""

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
    Difference,
    ExerciseCall,
    Flags,
    Requirement,
)
from dualml.course.judge import WIDER
from dualml.course.lab2.rules import all_reduce_seconds

SIZES = (200_000, 1_600_000)
#: Tolerance of a measurement: a fraction of the time, and seconds in which a busy machine wakes a
#: sleeping process. The mistakes add several times as much.
SHARE, WAKING_S = 0.25, 0.006
#: Mistaken units, and how many of them are a second.
UNITS = {"measure_milliseconds": 1e3, "measure_unit": 1e6, "measure_unit#2": 1e9}
FIRST_S, DISTURBED_S, LATE_S = 0.2, 0.12, 0.06
#: Smallest share of disturbed calls in a mean of several, about 1 of 8.
FEWEST_DISTURBED = 0.13
#: Pattern of the error if a solution calls a collective that the exercise does not have, and the
#: mistake that it shows.
WRONG_COLLECTIVE = ("AttributeError: comm has no .* in this exercise", "other_collective")


@dataclass
class TimingRequirement(Requirement):
    """Requirement on the measured seconds of each size, on two ranks.

    Attributes:
        late: seconds by which the other rank is late.
    """

    name: str
    late: float
    target: str = "measure"
    flags: Sequence[str] = (*UNITS, "measure_elements")
    follows: bool = True
    #: A busy program may disturb a right measurement, so that it has three attempts.
    tries: int = 3
    same_scale: bool = False
    errors: Sequence[tuple[str, str]] = (("ranks disagree", "crossed"), WRONG_COLLECTIVE)

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        """Make one call on two ranks, with a random latency (s), a random time per byte (s), and
        disturbances of fixed lengths."""
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
        return [ExerciseCall("measured", self.target, options, [{}, {}])]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return the seconds of an all-reduce of each size in `SIZES`, on both ranks; in another
        unit, or for four times the bytes, by the typical mistakes named in ``flags``."""
        size = 4 if "measure_elements" in flags else 1
        unit = next((UNITS[name] for name in UNITS if name in flags), 1.0)
        times = np.array([unit * all_reduce_seconds(call.options, size * s) for s in SIZES])
        return [{"seconds": times}, {"seconds": times}]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        """Return `SHARE` of the expected times plus `WAKING_S`; for mistakes, of times divided by
        `WIDER`."""
        times = self.expected(call, flags)[0]["seconds"]
        if flags:  # what a mistake explains may be `WIDER` times as far off
            times = times / WIDER
        unit = next((UNITS[name] for name in UNITS if name in flags), WIDER)
        waking = unit * WAKING_S / WIDER
        return [{"seconds": SHARE * times + waking} for _ in range(2)]

    def problem(
        self, call: ExerciseCall, answer: Answer
    ) -> tuple[Difference, tuple[str, ...]] | None:
        """Return the first wrong time, and the mistake that explains all times, after that of
        their unit if it is wrong, too (none for a wrong unit alone); None if they are right."""
        found = super().problem(call, answer)
        if found is None:
            return found
        if found[0].index is None:
            single = np.asarray(answer.arrays[0].get("seconds", ())).size == 1
            return found[0], ("measure_one_size",) if single else ()
        right = self.expected(call)[0]["seconds"]
        seen = np.asarray(answer.arrays[0]["seconds"], np.float64)
        calls = [*answer.arrays[0].get("calls", ())]
        for unit, per_second in {"": 1.0, **UNITS}.items():  # a wrong time, perhaps in a wrong unit
            mistakes = self.diagnose(seen / per_second, right)
            if "measure_unsynchronised" in mistakes:
                mistakes = (name_unsynchronised(calls),)
            if mistakes:
                return found[0], (unit, *mistakes) if unit else mistakes
        return found[0], ()

    def diagnose(self, seen: Array, right: Array) -> tuple[str, ...]:
        """Return the typical mistake that explains measured times ``seen`` which are longer than
        the ``right`` ones, in a tuple; empty if none does."""
        more, ratio = seen - right, seen / right

        def is_near(extra: float, within: float) -> bool:
            """Return whether all times are too long by about ``extra`` seconds."""
            return bool(np.all(np.abs(more - extra) < within))

        if self.late and is_near(self.late, 0.02):
            return ("measure_unsynchronised",)
        if is_near(DISTURBED_S, 0.03):
            return ("measure_maximum",)
        if is_near(FIRST_S, 0.04):
            return ("measure_first",)
        least = FEWEST_DISTURBED * DISTURBED_S
        if np.all((more > least) & (more < FIRST_S)) and np.ptp(more) < 0.03:
            return ("measure_mean",)
        if np.all((ratio > 2.5) & (ratio < 100)) and np.all(ratio < 1.6 * ratio.min()):
            return ("measure_total",)
        return ()

    def inputs(self, call: ExerciseCall, difference: Difference) -> dict[str, Any]:
        """Return latency α, time per byte β, and the bytes of the size whose time is wrong."""
        o = call.options
        return {"α": o["alpha"], "β": o["beta"], "bytes": SIZES[(difference.index or (0,))[0]]}


def name_unsynchronised(calls: Sequence[int]) -> str:
    """Return the mistake that lets a rank measure how late another one is.

    Args:
        calls: elements of a rank's calls, in their order; 0 for a barrier.
    """
    sizes = [int(n) for n in calls]
    if 0 not in sizes:
        return "measure_unsynchronised"
    after_barrier = [before == 0 for before, n in zip([-1, *sizes], sizes, strict=False) if n]
    often = 2 * sum(after_barrier) >= len(after_barrier)
    return "measure_barrier_timed" if often else "measure_barrier_once"
