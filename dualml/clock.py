"""Stopwatches for work that a device may do later than it is asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Names of clocks in records: the machine's monotonic clock, read when the device has nothing left
#: to do; and marks in the device's own queue, which tell when it came to them.
WALL, EVENTS = "wall", "events"


def start_wall(synchronize: Callable[[], None]) -> Callable[[], float]:
    """Start the machine's monotonic clock; return what stops it and tells the seconds.

    Args:
        synchronize: waits for the device, before the first reading and before the last.
    """
    synchronize()
    begin = time.perf_counter()

    def elapsed() -> float:
        synchronize()
        return time.perf_counter() - begin

    return elapsed
