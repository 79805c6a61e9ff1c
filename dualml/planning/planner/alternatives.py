"""Layouts that would be faster than a given one, and the part of the time that shrinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.priced_layouts import PricedLayouts

#: Axes whose product is the number of devices: when one changes, another one does.
MESH = ("dp", "pp", "tp", "cp")
#: Smallest share of the time that a reported alternative saves.
MIN_SAVED = 0.005


@dataclass(frozen=True)
class Alternative:
    """A faster layout.

    Attributes:
        row: row of the plan.
        changes: axis → value before and value after.
        saved: share of the time of an update that it saves.
        part: part of the time that shrinks most.
        part_saved: share of the time of an update by which that part shrinks.
    """

    row: int
    changes: dict[str, tuple[Any, Any]]
    saved: float
    part: str
    part_saved: float


def nearest_faster(plan: PricedLayouts, row: int, most: int = 3) -> list[Alternative]:
    """Return alternatives to the layout in ``row`` that fit and differ from it in a single choice:
    the fastest for each choice, by ascending time, at most ``most``. They save at least a share
    `MIN_SAVED` of the time; if the layout in ``row`` does not fit, they may be slower.

    A choice is an axis, or a factor that moves from one axis of the mesh to another.
    """
    x = plan.layouts
    names = [f.name for f in fields(Layouts) if f.name != "batch"]
    differs = {name: getattr(x, name) != getattr(x, name)[row] for name in names}
    # Devices that share an expert follow tp and ep.
    differs["etp"] = differs["etp"] & ~differs["tp"] & ~differs["ep"]
    mesh = sum(differs[name].astype(int) for name in MESH)
    others = [name for name in names if name not in MESH]
    # Where tp becomes 1 there is no sequence to share, and one device has nothing to shard.
    follows = {
        "sp": differs["tp"] & ((x.tp == 1) | (x.tp[row] == 1)),
        "zero": (mesh > 0) & ((x.zero_devices == 1) | (x.zero_devices[row] == 1)),
    }
    counted = {name: differs[name] & ~follows.get(name, np.False_) for name in others}
    number = sum(change.astype(int) for change in counted.values())
    now = plan.update_seconds[row]
    better = plan.fits & ((plan.update_seconds < (1 - MIN_SAVED) * now) | ~plan.fits[row])
    groups = [better & (mesh == 2) & (number == 0)]
    groups += [better & (mesh == 0) & (number == 1) & counted[name] for name in others]
    rows = [_fastest(plan, group) for group in groups if group.any()]
    rows.sort(key=lambda found: float(plan.update_seconds[found]))
    return [describe_alternative(plan, row, found) for found in rows[:most]]


def fastest_overall(plan: PricedLayouts, row: int) -> Alternative | None:
    """Return the fastest layout that fits if the one in ``row`` does not fit, or if it saves at
    least a share `MIN_SAVED` of that one's time; else None."""
    if not len(plan.ranked_rows):
        return None
    best = int(plan.ranked_rows[0])
    slower = plan.update_seconds[best] >= (1 - MIN_SAVED) * plan.update_seconds[row]
    if plan.fits[row] and slower:
        return None
    return describe_alternative(plan, row, best)


def _fastest(plan: PricedLayouts, mask: Any) -> int:
    """Return the fastest of the rows that a mask selects, of which there is at least one."""
    rows = np.flatnonzero(mask)
    return int(rows[plan.update_seconds[rows].argmin()])


def describe_alternative(plan: PricedLayouts, row: int, other: int) -> Alternative:
    """Return the layout in row ``other`` as an alternative to the one in ``row``; ``saved`` is
    negative if it is slower."""
    before, after = plan.seconds.describe(row), plan.seconds.describe(other)
    total = sum(before.values())
    part = max(before, key=lambda name: before[name] - after[name])
    return Alternative(
        other,
        dict(_changes(plan.layouts, row, other)),
        1 - sum(after.values()) / total,
        part,
        (before[part] - after[part]) / total,
    )


def _changes(x: Layouts, row: int, other: int) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield (axis, (value in ``row``, value in ``other``)) for every axis in which two layouts
    differ."""
    before, after = x.describe(row), x.describe(other)
    for field in fields(Layouts):
        name = field.name
        follows = name == "etp" and before["ep"] == after["ep"] == 1
        if before[name] != after[name] and not follows:
            yield name, (before[name], after[name])
