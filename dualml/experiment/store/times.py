"""Timing files of a rank: ``rankR.times.npz``, and for a split model ``rankR.timeline.npz``."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import read_npz
from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.parallel.aggregation.times import PARTS
from dualml.parallel.split.timeline import COLUMNS

Columns = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class ColumnFile:
    """One kind of NumPy archive: columns of float64 of equal length.

    Args:
        ending: file name after ``rankR.``.
        columns: names of the columns.
        packed: whether the archive is compressed.
    """

    ending: str
    columns: tuple[str, ...]
    packed: bool

    def path(self, trial: Path, rank: int) -> Path:
        """Return the path of a rank's file in the folder of a trial."""
        return trial / f"rank{rank}.{self.ending}"

    def write(self, trial: Path, rank: int, columns: Mapping[str, Any]) -> None:
        """Write a rank's columns as float64; ``columns`` must have all of the file's, and others
        are left out."""
        archive = io.BytesIO()
        save = np.savez_compressed if self.packed else np.savez
        save(archive, **{name: np.asarray(columns[name], np.float64) for name in self.columns})
        write_bytes(self.path(trial, rank), archive.getvalue())

    def read(self, trial: Path, rank: int) -> Columns:
        """Read the columns of a rank; raise `UserError` if the file is missing or damaged."""
        path = self.path(trial, rank)
        archive = read_npz(path)
        if missing := [name for name in self.columns if name not in archive]:
            raise UserError(f"{path}: {missing[0]} is missing")
        columns = {name: archive[name] for name in self.columns}
        for name, values in columns.items():
            if values.dtype != np.float64 or values.ndim != 1 or not np.isfinite(values).all():
                raise UserError(f"{path}: {name}: not a column of numbers")
        if len({len(values) for values in columns.values()}) > 1:
            raise UserError(f"{path}: {', '.join(self.columns)} are not equally long")
        return columns

    def read_all(self, trial: Path, ranks: int) -> list[Columns]:
        """Read the columns of ranks 0 … ``ranks`` − 1, one dict each; raise `UserError` if a file
        is missing or damaged."""
        return [self.read(trial, rank) for rank in range(ranks)]


TIMES = ColumnFile("times.npz", PARTS, packed=False)
TIMELINE = ColumnFile("timeline.npz", COLUMNS, packed=True)
