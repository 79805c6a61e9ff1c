"""Record and check golden runs, lab by lab."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import golden_numpy
import golden_recorded
from golden_files import labs, read_json, write_record

#: All records, as KIND/NAME.
NAMES = [f"{kind}/{name}" for kind in ("numpy", "recorded") for name in labs(kind)]


def record_of(name: str) -> Path:
    return golden_numpy.FOLDER / f"{name.split('/')[1]}.json"


def today(name: str) -> dict[str, Any]:
    """Return what would be recorded now."""
    with tempfile.TemporaryDirectory(prefix="dualml-golden-") as folder:
        return golden_numpy.run(name.split("/")[1], Path(folder) / "run")


def check(name: str) -> list[str]:
    """Return what has changed since the record was made; empty if nothing has."""
    kind, _, lab = name.partition("/")
    if kind == "recorded":
        return golden_recorded.check(lab)
    return golden_numpy.compare(read_json(record_of(name)), today(name))


def record(name: str) -> list[str]:
    kind, _, lab = name.partition("/")
    if kind == "recorded":
        return golden_recorded.record(lab)
    write_record(record_of(name), today(name))
    return []
