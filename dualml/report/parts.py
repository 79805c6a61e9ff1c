"""What is read beside the curves: measured collectives, moments, distances, deals, splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualml.aggregation.times import read_times
from dualml.errors import UserError
from dualml.report.model import Array
from dualml.split.timeline import COLUMNS, read_timeline


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


def apart(place: Path, ranks: int) -> tuple[Array, ...]:
    """For each rank the rows (update, divergence, drift); empty where one has none."""
    found = []
    for rank in range(ranks):
        rows = _distances(place / f"rank{rank}.jsonl")
        if not rows:
            return ()
        found.append(np.array(sorted(rows), dtype=np.float64))
    return tuple(found)


def _distances(path: Path) -> list[tuple[float, float, float]]:
    told: dict[int, dict[str, float]] = {}
    if not path.is_file():
        return []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"divergence"' not in line and '"drift"' not in line:
            continue  # the losses are many
        try:
            r = json.loads(line)
            value = np.nan if r.get("value") is None else float(r["value"])
            told.setdefault(int(r["step"]), {})[str(r["metric"])] = value
        except (ValueError, KeyError, TypeError):
            continue  # the worker was killed while it wrote
    return [(s, v.get("divergence", np.nan), v.get("drift", np.nan)) for s, v in told.items()]


def deals(folder: Path) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """The statements of the plan's deals, by key; empty where it has none.

    Raises:
        UserError: a plan that cannot be read.
    """
    try:
        told = _plan(folder).get("deals") or {}
        return {str(key): tuple(dict(each) for each in found) for key, found in told.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"cannot read {folder / 'plan' / 'plan.json'}: {error}") from None


def splits(folder: Path) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """What the plan says of each split arm, and its models by name; empty where it has none.

    Raises:
        UserError: a plan that cannot be read.
    """
    told = _plan(folder)
    models = dict(told.get("models") or {})
    if told.get("model"):
        models[str(told["model"].get("name"))] = told["model"]
    return dict(told.get("splits") or {}), models


def timelines(place: Path, ranks: int) -> tuple[Mapping[str, Array], ...]:
    """What every rank did when; no events where a rank left none, nothing where none did."""
    found = []
    for rank in range(ranks):
        try:
            found.append(read_timeline(place / f"rank{rank}.timeline.npz"))
        except UserError:
            found.append({name: np.zeros(0) for name in COLUMNS})
    return tuple(found) if any(len(events["step"]) for events in found) else ()


def _plan(folder: Path) -> dict[str, Any]:
    path = folder / "plan" / "plan.json"
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
