"""Simulated times of all-reduces for an exercise in measuring: known to the judge, and hard to
measure.

The first call of a size is slow, some calls are disturbed, one rank is late. The student's process
knows nothing of it: the mediator makes the ranks wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.course.collectives import Ask

#: One call in this many is disturbed.
DISTURBED = 4
#: Options of a call that configure the clock and that no rank receives.
CLOCK_OPTIONS = ("alpha", "beta", "first", "disturbed", "late")
#: Bytes per element.
WIDTHS = {"float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


class Clock:
    """Clock of all-reduces that return their argument after α + β·bytes seconds.

    Args:
        options: ``alpha`` (s), ``beta`` (s per byte); ``first``, extra seconds of the first call of
            a size; ``disturbed``, extra seconds of every fourth call; ``late``, seconds by which
            rank 1 is late for its next request after an all-reduce. Without ``alpha`` there is no
            clock, and collectives take their real time.
    """

    def __init__(self, options: Mapping[str, Any], size: int) -> None:
        self.options, self.runs = options, "alpha" in options
        self.calls: dict[int, int] = {}
        self.busy = [False] * size

    def lateness(self, rank: int) -> float:
        """Return the seconds until ``rank``, which asks now, counts as having arrived: the option
        ``late`` once after `finish` made it late, else 0."""
        if not self.runs or not self.busy[rank]:
            return 0.0
        self.busy[rank] = False
        return float(self.options["late"])

    def duration(self, ask: Ask) -> float:
        """Return the seconds that a collective takes once all ranks have arrived: for an
        all-reduce, which is counted, α + β · bytes, more for the first of a size and for every
        `DISTURBED`-th of it; 0 for other collectives. Only for a clock that runs."""
        if ask.name != "all_reduce":
            return 0.0
        size = WIDTHS[ask.dtype] * ask.elements
        made = self.calls[size] = self.calls.get(size, 0) + 1
        seconds = float(self.options["alpha"] + self.options["beta"] * size)
        seconds += self.options["first"] if made == 1 else 0.0
        return seconds + (self.options["disturbed"] if made % DISTURBED == 0 else 0.0)

    def finish(self, ask: Ask) -> None:
        """Make rank 1 late for its next request if ``ask``, which has finished, is an all-reduce;
        nothing with one rank or without a clock."""
        if self.runs and ask.name == "all_reduce" and len(self.busy) > 1:
            self.busy[1] = True
