"""Stopwatches for work that a device executes asynchronously."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Names of clocks in records: the host's monotonic clock, read after synchronizing the device, and
#: events in the device's own queue.
WALL, EVENTS = "wall", "events"


def start_wall_clock(synchronize: Callable[[], None]) -> Callable[[], float]:
    """Start the host's monotonic clock; return a function that returns the seconds since then.

    The function may be called repeatedly: the clock goes on.

    Args:
        synchronize: waits for the device; called before every reading of the clock.
    """
    synchronize()
    begin = time.perf_counter()

    def elapsed() -> float:
        synchronize()
        return time.perf_counter() - begin

    return elapsed
