"""What trials with several ranks leave beside their curves: measured collectives, moments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.aggregation.times import read_times
from dualml.errors import UserError
from dualml.report.model import Array


def collectives(place: Path) -> dict[str, Any] | None:
    """``collectives.json`` of a trial; None where it is not there.

    Raises:
        UserError: a file that cannot be read.
    """
    path = place / "collectives.json"
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["rows"] = [dict(row) for row in found["rows"]]
        return dict(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def moments(place: Path, ranks: int) -> tuple[Mapping[str, Array], ...]:
    """The times of every rank; empty where one is missing."""
    try:
        return tuple(read_times(place / f"rank{rank}.times.npz") for rank in range(ranks))
    except UserError:
        return ()
