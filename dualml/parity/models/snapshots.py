"""Copies of a model's tensors for a later restore: in memory, or on a disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import read_array


@dataclass(frozen=True)
class ShelvedTensor:
    """A tensor as it was when it was put aside.

    Attributes:
        recall: returns the tensor as it was; the result must not be changed.
    """

    recall: Callable[[], Any]


class SnapshotFile:
    """A temporary file for the tensors of one snapshot; it is deleted when nothing refers to it any
    more.

    Args:
        folder: folder of the file; made if needed.
        recorded: name of a tensor → function that reads its numbers, which the trace has already.
    """

    def __init__(self, folder: Path, recorded: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Closed, and thereby deleted, with the last function that reads from it.
        self.file: Any = tempfile.TemporaryFile(  # noqa: SIM115
            dir=folder, prefix=".snapshot-", buffering=0
        )
        self.size, self.recorded = 0, recorded

    def write_array(self, array: NDArray[Any], name: str = "") -> Callable[[], NDArray[Any]]:
        """Write the present numbers of an array into the file, unless the trace has them or they
        are all equal; the array itself may change afterwards.

        Args:
            name: its name in ``recorded``, whose copy then is used.

        Returns:
            A function that reads the array, as it was, and returns it.

        Raises:
            OSError: there is no space left.
        """
        if name in self.recorded:
            return self.recorded[name]
        values = np.ascontiguousarray(array)
        if values.size > 1 and is_constant(values):
            # An optimizer's state before its first update is as large as the model, and zero.
            return partial(np.full, values.shape, values.reshape(-1)[0].copy())
        self.file.seek(self.size)
        rest = values.reshape(-1).view(np.uint8).data
        while len(rest):
            rest = rest[self.file.write(rest) :]
        begin, self.size = self.size, self.size + values.nbytes
        return partial(self.read, begin, values.dtype, array.shape)

    def read(self, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Read and return the array that begins at byte ``begin`` of the file."""
        return read_array(self.file, begin, dtype, shape)


def is_constant(values: NDArray[Any]) -> bool:
    """Return whether all elements of a contiguous array have the same bits."""
    flat = values.reshape(-1)
    # Most arrays show it at their ends.
    if not (flat[0] == flat[-1] and flat[0] == flat[flat.size // 2]):
        return False
    bits = flat.view(f"u{flat.itemsize}") if flat.itemsize in (1, 2, 4, 8) else flat
    return bool((bits == bits[0]).all())
