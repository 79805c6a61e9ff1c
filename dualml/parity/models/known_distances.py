"""Measured distances of a comparison, in a file for the process that searches for the cause."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from dualml.common.files import read_json, write_json
from dualml.parity.models.trace_comparison import KnownDistances

#: Name of the file in the folder of a comparison.
DISTANCES = "distances.json"


def write_distances(folder: Path, known: KnownDistances) -> None:
    """Write the finite distances among ``known``, by (step, phase, name), into the folder of a
    comparison."""
    rows = [[*where, distance] for where, distance in known.items() if isfinite(distance)]
    write_json(folder / DISTANCES, rows)


def read_distances(folder: Path) -> KnownDistances | None:
    """Return the distances that `write_distances` wrote into a folder, by (step, phase, name); None
    if there are none."""
    path = folder / DISTANCES
    if not path.exists():
        return None
    return {(step, phase, tensor): distance for step, phase, tensor, distance in read_json(path)}
