"""What is moved, and how long that takes: counted for updates alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass
class Traffic:
    """Of some updates of one rank, in bytes and nanoseconds.

    Attributes:
        updates, made: in all, and without those that were skipped.
        rounds: forward and backward passes in them.
        to_device, to_host, copy_ns: between host memory and the device.
        read, written, read_ns, write_ns: on disk.
        wait_ns: of reading and writing, what the training waited for; the rest was hidden.
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

    def add(self, other: Traffic) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the time inside as ``copy_ns``, …"""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.perf_counter_ns() - begin)


class Meter:
    """Tells the traffic of updates from that of looks and evaluations.

    Attributes:
        now: what is under way; jobs of a thread add to the one that was there when they began.
    """

    def __init__(self) -> None:
        self.now, self.total = Traffic(), Traffic()
        self._last = Traffic()

    def begin(self) -> None:
        """An update, or a look, begins."""
        self.now = Traffic()

    def end(self, made: bool) -> None:
        """It was an update, ``made`` or skipped, which is over but for what is still being
        written."""
        self.now.updates, self.now.made = 1, int(made)
        self.total.add(self._last)  # whose writing is over: what was read since came after it
        self._last, self.now = self.now, Traffic()

    def sum(self) -> Traffic:
        """Of all updates; nothing may be under way."""
        self.total.add(self._last)
        self._last = Traffic()
        return self.total

    def clear(self) -> None:
        self.now, self.total, self._last = Traffic(), Traffic(), Traffic()
