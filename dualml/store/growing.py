"""Records of a rank that may still be growing: each look reads only what has come since the last.

The rules of a line are those of `dualml.store.records`.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dualml.errors import UserError
from dualml.files import open_to_read
from dualml.store.records import Array, Curve, Row, curve, records_path, rows_of

#: Bytes that one look reads at most, and that are read of a file in all.
PIECE, MOST = 16 * 2**20, 256 * 2**20
#: Of what was read last so much is compared: a resumed trial goes on from its checkpoint, and may
#: have become as long again since.
TAIL = 256


@dataclass
class Growing:
    """What a rank has recorded so far.

    Attributes:
        size: bytes read, up to the end of a line.
        problem: why nothing more is read: a line that is no record; empty otherwise.
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
        return records_path(self.trial, self.rank)

    @property
    def curves(self) -> dict[str, Curve]:
        """Metric → its curve, as `read_records` gives it."""
        return self._curves

    @property
    def step(self) -> int | None:
        """The last update that anything was recorded of."""
        return max((int(c.step[-1]) for c in self._curves.values()), default=None)

    def look(self) -> bool:
        """Read what is new, at most `PIECE`; whether anything has changed. Several threads may."""
        with self._lock:
            return self._read_new_lines()

    def _read_new_lines(self) -> bool:
        """Read what is new, with the lock held; whether anything has changed."""
        try:
            with open_to_read(self.path) as file:
                there = os.fstat(file.fileno()).st_size
                again = there < self.size or not self._goes_on(file.fileno())
                if again:
                    self._forget()
                room = min(PIECE, MOST - self.size)
                if self.problem or there == self.size or room <= 0:
                    return again
                file.seek(self.size)
                new = file.read(room)
        except OSError:
            changed = bool(self.size)
            self._forget()
            return changed
        new = new[: new.rfind(b"\n") + 1]
        if not new:
            return again
        lines = new.splitlines()
        try:
            self._add(rows_of(self.path, lines, self._lines + 1))
        except UserError as error:
            self.problem = str(error)
            return True
        self.size, self._lines = self.size + len(new), self._lines + len(lines)
        self._tail = (self._tail + new)[-TAIL:]
        return True

    def _goes_on(self, file: int) -> bool:
        """Whether what was read last still stands there."""
        return os.pread(file, len(self._tail), self.size - len(self._tail)) == self._tail

    def _forget(self) -> None:
        self.size, self.problem, self._lines, self._tail = 0, "", 0, b""
        self._curves = {}

    def _add(self, rows: dict[str, list[Row]]) -> None:
        curves = dict(self._curves)  # the old ones stay as they are for who reads them
        for name, new in rows.items():
            fresh = stacked(curve(self.path, name, new))
            if (known := curves.get(name)) is not None:
                fresh = np.concatenate([stacked(known), fresh], axis=1)
                if (np.diff(fresh[0]) < 0).any():
                    fresh = fresh[:, np.argsort(fresh[0], kind="stable")]
            curves[name] = Curve(*fresh)
        self._curves = curves


def stacked(of: Curve) -> Array:
    """(4, records) its columns."""
    return np.stack([of.step, of.value, of.epochs, of.seconds])
