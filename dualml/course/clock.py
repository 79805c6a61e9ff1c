"""The times of an all-reduce that an exercise has to measure: known, and hard to take.

The first call of a size is slow, some calls are disturbed, one rank comes late. Nothing of it is
known to the student's process: the mediator lets the ranks wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.course.collectives import Ask

#: Every so many calls one is disturbed.
DISTURBED = 4
#: Options of a call that no rank is told.
HIDDEN = ("alpha", "beta", "first", "disturbed", "late")
#: Bytes of an element.
WIDTHS = {"float16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8}


class Clock:
    """All-reduces that return their argument after α + β·bytes seconds.

    Args:
        options: ``alpha`` (s), ``beta`` (s per byte); ``first``, seconds more of the first call of
            a size; ``disturbed``, seconds more of every fourth call; ``late``, seconds that rank 1
            has something else to do after an all-reduce, before it comes to what is next. Without
            ``alpha`` no clock runs, and collectives take what they take.
    """

    def __init__(self, options: Mapping[str, Any], size: int) -> None:
        self.options, self.runs = options, "alpha" in options
        self.calls: dict[int, int] = {}
        self.busy = [False] * size

    def lateness(self, rank: int) -> float:
        """Seconds after which a rank that asks now has come."""
        if not self.runs or not self.busy[rank]:
            return 0.0
        self.busy[rank] = False
        return float(self.options["late"])

    def duration(self, ask: Ask) -> float:
        """Seconds that a collective takes, once all ranks are there."""
        if ask.name != "all_reduce":
            return 0.0
        size = WIDTHS[ask.dtype] * ask.elements
        made = self.calls[size] = self.calls.get(size, 0) + 1
        seconds = float(self.options["alpha"] + self.options["beta"] * size)
        seconds += self.options["first"] if made == 1 else 0.0
        return seconds + (self.options["disturbed"] if made % DISTURBED == 0 else 0.0)

    def finish(self, ask: Ask) -> None:
        """Make rank 1 late for its next request, once an all-reduce is over."""
        if self.runs and ask.name == "all_reduce" and len(self.busy) > 1:
            self.busy[1] = True
