"""Timeline of a rank: when it computed, sent, waited for a message, reduced and updated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: ``F``, ``B``: a stage's work on a micro-batch. ``send``, ``receive``: a message between stages.
#: ``collective``: among the ranks that hold slices of a layer (inside F or B), ``reduce``: among
#: those that hold the same parameters. ``update``: the optimizer.
KINDS = ("F", "B", "send", "receive", "collective", "reduce", "update")
COLUMNS = ("step", "kind", "stage", "micro", "backward", "begin", "end", "bytes")
MAX_UPDATES = 400  # number of latest updates that are kept


class Timeline:
    """Recorded events of one rank, in seconds of the machine's monotonic clock."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.starts: list[int] = []
        self.step, self.enabled = 0, True

    def begin_step(self, step: int) -> None:
        """Count the events that follow to update ``step``; drop old ones, but none of the latest
        `MAX_UPDATES` updates. Nothing happens while recording is paused."""
        if not self.enabled:
            return
        self.step = step
        self.starts.append(len(self.rows))
        if len(self.starts) > 2 * MAX_UPDATES:
            drop = self.starts[MAX_UPDATES]
            self.rows = self.rows[drop:]
            self.starts = [start - drop for start in self.starts[MAX_UPDATES:]]

    @contextmanager
    def pause_recording(self) -> Iterator[None]:
        """Pause recording inside the context, for evaluations that are not part of an update."""
        before, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = before

    @contextmanager
    def record(
        self, kind: str, stage: int = -1, micro: int = -1, backward: bool = False, nbytes: int = 0
    ) -> Iterator[None]:
        """Record an event of a ``kind`` of `KINDS` that lasts as long as the context, unless
        recording is paused when it ends. ``backward``: whether it belongs to a backward pass;
        ``nbytes``: the bytes moved; −1: no stage or micro-batch."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if self.enabled:
                row = (self.step, KINDS.index(kind), stage, micro, backward)
                self.rows.append((*row, start, time.perf_counter(), nbytes))

    def clear(self) -> None:
        """Drop all recorded events."""
        self.rows, self.starts = [], []

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return the events as one float64 array per column of `COLUMNS`: ``kind`` as its index in
        `KINDS`, ``stage`` and ``micro`` −1 where there is none, times in seconds of the monotonic
        clock."""
        table = np.array(self.rows, np.float64).reshape(-1, len(COLUMNS))
        return {name: table[:, i] for i, name in enumerate(COLUMNS)}
