"""Numbers of units kept outside of the device, and taken from there one unit at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from dualml.backend import Array


class Records(Protocol):
    """One 1-D array for each unit.

    Attributes:
        host, disk: bytes held.
        hung: whether the disk has not answered in time; a job of the thread may never end then.
    """

    host: int
    disk: int
    hung: bool

    def plan(self, order: Iterable[int]) -> None:
        """These units are taken next, in this order."""

    def take(self, number: int) -> Array:
        """The record of a unit; valid until the next is taken.

        Raises:
            TrialError: what was to be written before could not be, or this cannot be read.
        """

    def give(self) -> None:
        """Keep what the array of the last `take` holds now."""

    def settle(self) -> None:
        """Wait until nothing is being written; raises as `take`."""

    def close(self) -> None:
        """Give back files and memory; harmless when called again."""


class HostRecords:
    """In host memory, where they are used as they are."""

    def __init__(self, lengths: Sequence[int], dtype: str) -> None:
        self.arrays = [np.zeros(length, dtype) for length in lengths]
        self.host, self.disk = sum(array.nbytes for array in self.arrays), 0
        self.hung = False

    def plan(self, order: Iterable[int]) -> None:
        """Nothing has to be read ahead."""

    def take(self, number: int) -> Array:
        return self.arrays[number]

    def give(self) -> None:
        """They are the arrays that were taken."""

    def settle(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        self.arrays.clear()
