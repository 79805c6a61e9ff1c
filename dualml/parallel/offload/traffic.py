"""Counters of data movement by offloading and its time, for updates only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass
class OffloadCounters:
    """Data movement in one or more updates of one rank, in bytes and nanoseconds.

    Attributes:
        updates, made: all updates, and those that were not skipped.
        rounds: forward and backward passes in them.
        to_device, to_host, copy_ns: copies between host memory and the device.
        read, written, read_ns, write_ns: disk access.
        wait_ns: time that the training waited for disk access; the rest was overlapped.
    """

    updates: int = 0
    made: int = 0
    rounds: int = 0
    to_device: int = 0
    to_host: int = 0
    copy_ns: int = 0
    read: int = 0
    written: int = 0
    read_ns: int = 0
    write_ns: int = 0
    wait_ns: int = 0

    def add(self, other: OffloadCounters) -> None:
        """Add the counters of another object to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the wall time of the context, in nanoseconds, to the counter ``what``, such as
        ``copy_ns``."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.perf_counter_ns() - begin)


class Meter:
    """Separates the data movement of updates from that of evaluations.

    Attributes:
        current: counters of the work in progress; jobs of a thread add to the object that was
            current when they began.
    """

    def __init__(self) -> None:
        self.current, self.total = OffloadCounters(), OffloadCounters()
        self._last = OffloadCounters()

    def begin_counting(self) -> None:
        """Start new counters for an update or an evaluation; what was counted since the last update
        ended is dropped."""
        self.current = OffloadCounters()

    def end_update(self, made: bool) -> None:
        """Count the current work as an update, ``made`` or skipped; its writes may still be
        pending."""
        self.current.updates, self.current.made = 1, int(made)
        self.total.add(self._last)  # its writes are done: later reads came after them
        self._last, self.current = self.current, OffloadCounters()

    def total_counters(self) -> OffloadCounters:
        """Return the counters of all updates since `clear`, in one object to which later updates
        are added; no work may be pending."""
        self.total.add(self._last)
        self._last = OffloadCounters()
        return self.total

    def clear(self) -> None:
        """Reset all counters to zero."""
        self.current, self.total = OffloadCounters(), OffloadCounters()
        self._last = OffloadCounters()
