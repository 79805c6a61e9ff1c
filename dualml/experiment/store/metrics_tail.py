"""Incremental reader of a rank's records: each poll reads only what was appended since the last
one.

Lines are parsed as in `dualml.experiment.store.records`.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import open_to_read
from dualml.experiment.store.records import Array, Curve, Row, group_rows, make_curve, records_path

#: Largest number of bytes that one poll reads, and that are read of a file in total.
MAX_POLL_BYTES, MAX_TOTAL_BYTES = 16 * 2**20, 256 * 2**20
#: Number of the last bytes that are compared with the file: a resumed trial truncates it to its
#: checkpoint, and may have reached the same length again since.
TAIL = 256


@dataclass
class MetricsTail:
    """The curves that a rank has recorded so far, read incrementally by `poll`.

    Attributes:
        trial: folder of the trial.
        rank: rank whose records are read.
        size: bytes read, up to the end of a line.
        problem: the error that stops reading, a line that is no record; else empty.
    """

    trial: Path
    rank: int = 0
    size: int = 0
    problem: str = ""
    _lines: int = 0
    _tail: bytes = b""
    _curves: dict[str, Curve] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def path(self) -> Path:
        """Path of the records file."""
        return records_path(self.trial, self.rank)

    @property
    def curves(self) -> dict[str, Curve]:
        """Metric → curve of what `poll` has read so far, as `read_records` returns it."""
        return self._curves

    @property
    def step(self) -> int | None:
        """Last update of which `poll` has read a record, or None."""
        return max((int(c.step[-1]) for c in self._curves.values()), default=None)

    def poll(self) -> bool:
        """Read at most `MAX_POLL_BYTES` new bytes, up to `MAX_TOTAL_BYTES` of the file, and return
        whether anything has changed. It is thread-safe."""
        with self._lock:
            return self._read_new_lines()

    def _read_new_lines(self) -> bool:
        """Read new lines and return whether anything has changed; the lock must be held."""
        try:
            with open_to_read(self.path) as file:
                there = os.fstat(file.fileno()).st_size
                again = there < self.size or not self._is_continuation(file.fileno())
                if again:
                    self._reset()
                room = min(MAX_POLL_BYTES, MAX_TOTAL_BYTES - self.size)
                if self.problem or there == self.size or room <= 0:
                    return again
                file.seek(self.size)
                new = file.read(room)
        except OSError:
            changed = bool(self.size)
            self._reset()
            return changed
        new = new[: new.rfind(b"\n") + 1]
        if not new:
            return again
        lines = new.splitlines()
        try:
            self._add(group_rows(self.path, lines, self._lines + 1))
        except UserError as error:
            self.problem = str(error)
            return True
        self.size, self._lines = self.size + len(new), self._lines + len(lines)
        self._tail = (self._tail + new)[-TAIL:]
        return True

    def _is_continuation(self, file: int) -> bool:
        """Return whether the bytes read last are still in the file."""
        return os.pread(file, len(self._tail), self.size - len(self._tail)) == self._tail

    def _reset(self) -> None:
        """Start again from the beginning of the file."""
        self.size, self.problem, self._lines, self._tail = 0, "", 0, b""
        self._curves = {}

    def _add(self, rows: dict[str, list[Row]]) -> None:
        """Append new rows, by metric, to the curves, sorted by update; curves that were returned
        before stay unchanged."""
        curves = dict(self._curves)  # the old ones stay as they are for who reads them
        for name, new in rows.items():
            fresh = stack_columns(make_curve(self.path, name, new))
            if (known := curves.get(name)) is not None:
                fresh = np.concatenate([stack_columns(known), fresh], axis=1)
                if (np.diff(fresh[0]) < 0).any():
                    fresh = fresh[:, np.argsort(fresh[0], kind="stable")]
            curves[name] = Curve(*fresh)
        self._curves = curves


def stack_columns(of: Curve) -> Array:
    """Stack a curve's columns as an array of shape (4, records)."""
    return np.stack([of.step, of.value, of.epochs, of.seconds])
