"""Find the limit of a layout by the parts of its own time, and price remedies of its bubble."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.priced_layouts import PricedLayouts, price_layouts
from dualml.planning.planner.rules import broken_rules

#: Parts of the time that are the devices' own work; all others but the bubble are messages.
WORK = ("products", "traffic", "recompute", "launches", "update")
BUBBLE = "bubble"
#: A bound that costs less than this share of the time is not reported as the limit.
MIN_BOUND_SHARE = 0.05
#: Share of the time from which a bubble is worth a remedy.
LARGE_BUBBLE = 0.15
#: Largest number of stages on a device that is tried against a bubble.
MAX_CHUNKS = 8


def group_shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the shares, from 0 to 1, of work, bubble and links in the time of one layout.

    Args:
        parts: part → seconds of an update, see `UpdateSeconds.describe`.
    """
    total = sum(parts.values())
    work = sum(parts[part] for part in WORK if part in parts)
    bubble = parts.get(BUBBLE, 0.0)
    return {
        "work": work / total,
        BUBBLE: bubble / total,
        "links": (total - work - bubble) / total,
    }


def message_parts(parts: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of those of the ``parts`` of an update's time that are messages: all but the
    devices' own work (`WORK`) and the bubble."""
    return tuple(part for part in parts if part not in (*WORK, BUBBLE))


def binding_bound(parts: Mapping[str, float], memory: float | None) -> str:
    """Return the bound that costs a layout most: ``bubble``, ``links`` or ``launches`` by their
    parts of its own time, or ``memory``.

    Args:
        parts: part → seconds of an update.
        memory: share of its time that the fastest layout of all would save without a memory limit;
            None if that is not asked, and ``recompute``, the price of memory within the layout,
            takes its place.

    Returns:
        If no bound costs five percent, the larger part of the device's work: ``products`` or
        ``traffic``.
    """
    shares = group_shares(parts)
    total = sum(parts.values())
    costs = {BUBBLE: shares[BUBBLE], "links": shares["links"]}
    costs["launches"] = parts["launches"] / total
    if memory is None:
        costs["recompute"] = parts["recompute"] / total
    else:
        costs["memory"] = memory
    name = max(costs, key=lambda bound: costs[bound])
    if costs[name] >= MIN_BOUND_SHARE:
        return name
    return "products" if parts["products"] >= parts["traffic"] else "traffic"


@dataclass(frozen=True)
class BubbleRemedy:
    """A change of a layout that makes its bubble smaller.

    Attributes:
        kind: ``chunks``, more stages on a device, or ``batch``, more micro-batches.
        value: new number of stages on a device, or of sequences per update.
        bubble: share of the time that the bubble has then.
        saved: share of the time of a sequence that the change saves.
    """

    kind: str
    value: int
    bubble: float
    saved: float


def find_bubble_remedies(plan: PricedLayouts, row: int) -> list[BubbleRemedy]:
    """Price the two remedies of a large bubble, interleaved stages (the best number of them that
    fits) and twice the batch; empty if the bubble is small, and without remedies that do not
    help."""
    parts = plan.seconds.describe(row)
    if group_shares(parts)[BUBBLE] <= LARGE_BUBBLE:
        return []
    x, found = plan.layouts, []
    axes = x.describe(row)
    counts = [
        v
        for v in range(axes["chunks"] + 1, MAX_CHUNKS + 1)
        if not list(
            broken_rules(
                plan.request.shape, {**axes, "chunks": v}, axes["batch"], plan.request.engine
            )
        )
    ]
    if counts:
        found += _remedies(plan, row, "chunks", counts)
    return found + _remedies(plan, row, "batch", [2 * axes["batch"]])


def _remedies(plan: PricedLayouts, row: int, axis: str, values: list[int]) -> list[BubbleRemedy]:
    """Price the layout in ``row`` with each of the ``values`` of one ``axis``; return a list of the
    best that fits and is faster per sequence, empty if there is none."""
    one = plan.layouts.select_rows(np.full(len(values), row))
    changed: Layouts = replace(one, **{axis: np.array(values, np.int64)})
    priced = price_layouts(plan.request, changed)
    before = plan.update_seconds[row] / plan.layouts.batch[row]
    each = np.where(priced.fits, priced.update_seconds / changed.batch, np.inf)
    best = int(each.argmin())
    if not each[best] < before:
        return []
    bubble = group_shares(priced.seconds.describe(best))[BUBBLE]
    return [BubbleRemedy(axis, values[best], bubble, float(1 - each[best] / before))]
