"""Unit records kept outside the device and accessed one unit at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from dualml.backend import Array


class UnitRecords(Protocol):
    """Storage of one 1-D array per unit.

    Attributes:
        host, disk: bytes in host memory and on disk.
        hung: whether the disk has not answered in time; a job of the thread may then never end.
    """

    host: int
    disk: int
    hung: bool

    def set_acquire_order(self, order: Iterable[int]) -> None:
        """Announce the order in which units will be acquired, so that they can be prefetched."""

    def acquire(self, number: int) -> Array:
        """Return the record of a unit; it is valid until the next one is acquired. Changes to it
        may be lost unless `release` follows.

        Raises:
            TrialError: an earlier write failed, or this record cannot be read.
        """

    def release(self) -> None:
        """Write back the record that was acquired last, with its current content."""

    def flush(self) -> None:
        """Wait until all pending writes are done.

        Raises:
            TrialError: a write failed.
        """

    def close(self) -> None:
        """Release files and memory; may be called again."""


class HostRecords:
    """Unit records in host memory, used in place."""

    def __init__(self, lengths: Sequence[int], dtype: str) -> None:
        self.arrays = [np.zeros(length, dtype) for length in lengths]
        self.host, self.disk = sum(array.nbytes for array in self.arrays), 0
        self.hung = False

    def set_acquire_order(self, order: Iterable[int]) -> None:
        """Do nothing, because records in host memory need no prefetching."""

    def acquire(self, number: int) -> Array:
        """Return the record of unit ``number`` itself; changes to it are permanent."""
        return self.arrays[number]

    def release(self) -> None:
        """Do nothing, because the acquired array is the record itself."""

    def flush(self) -> None:
        """Do nothing, because there are no pending writes."""

    def close(self) -> None:
        """Free the records; may be called again."""
        self.arrays.clear()
