"""Pinned axes of a search, ``--pin tp=8,zero=1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.planner.layouts import OPTIONAL_AXES, Layouts, encode_axes
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import SearchSpace

if TYPE_CHECKING:
    from dualml.planning.planner.plan_request import PlanRequest

#: Axis → field of the search space with its largest value.
LARGEST: Mapping[str, str] = {"tp": "tensor", "cp": "context", "chunks": "chunks", "ep": "experts"}
#: Axis → field of the search space with its allowed values.
ALLOWED: Mapping[str, str] = {"zero": "zero", "recompute": "recompute", "sp": "sequence"}


def widen_space(space: SearchSpace, pins: Mapping[str, Any], shape: Shape) -> SearchSpace:
    """Return a search space that has the pinned values: bounds are raised to them, though no more
    stages stand on a device than the model has layers, and of zero, recomputation and sequence
    parallelism only they are left."""
    changes: dict[str, Any] = {}
    for axis, value in pins.items():
        if axis in LARGEST:
            changes[LARGEST[axis]] = max(value, getattr(space, LARGEST[axis]))
        elif axis in ALLOWED:
            changes[ALLOWED[axis]] = (int(value) if axis == "sp" else value,)
    widened = replace(space, **changes)
    return replace(widened, chunks=min(widened.chunks, shape.layers))


def select_pinned(layouts: Layouts, request: PlanRequest) -> Layouts:
    """Return the layouts with the pinned axes. An axis that the search leaves at its default is set
    to its pinned value where the layout allows that.

    Raises:
        UserError: there are none; the message says what values a pinned axis has among the layouts
            that the other pins leave.
    """
    pins: Mapping[str, int] = encode_axes(request.pins)  # type: ignore[arg-type]
    layouts = _set_unsearched(layouts, request.shape, pins)
    matches = {axis: getattr(layouts, axis) == value for axis, value in pins.items()}
    kept = np.logical_and.reduce(list(matches.values())) if matches else np.ones(len(layouts), bool)
    if kept.any():
        return layouts if kept.all() else layouts.select_rows(kept)
    raise UserError("; ".join(_missing_pin(layouts, request, matches)))


def _set_unsearched(layouts: Layouts, shape: Shape, pins: Mapping[str, int]) -> Layouts:
    """Return the layouts with the pinned values of axes that a search leaves at their defaults,
    where the layout allows them."""
    for axis, value in pins.items():
        column = getattr(layouts, axis)
        if axis not in OPTIONAL_AXES or not (column == column[0]).all() or axis == "etp":
            continue
        ranks, possible = layouts.dp * layouts.cp, np.ones(len(layouts), bool)
        if axis == "replicate":
            possible = (ranks % value == 0) & ((layouts.zero > 0) | (value == 1))
        elif axis == "ep":
            even = ranks * layouts.tp % (value * layouts.etp) == 0
            possible = even & (shape.experts > 0 and shape.experts % value == 0)
        layouts = replace(layouts, **{axis: np.where(possible, value, column)})
    return layouts


def _missing_pin(layouts: Layouts, request: PlanRequest, matches: Mapping[str, Any]) -> list[str]:
    """Return the sentences about the pins that no layout has: alone, or beside the others."""
    sentences = []
    for axis, match in matches.items():
        others = [mask for name, mask in matches.items() if name != axis]
        alone = not match.any()
        left = np.ones(len(layouts), bool) if alone or not others else np.logical_and.reduce(others)
        if not left.any():
            continue
        values = [layouts.describe(row)[axis] for row in _first_rows(layouts, axis, left)]
        shown = ", ".join(map(str, values[:20])) + (" …" if len(values) > 20 else "")
        beside = "" if alone else " beside the other pins"
        sentences.append(
            f"--pin {axis}={request.pins[axis]}: no layout of {request.cluster.devices:,} devices "
            f"and a batch of {request.batch:,} has it{beside}; {axis} may be {shown}"
        )
        if alone:
            break
    return sentences or ["--pin: no layout has the pinned axes; leave one out"]


def _first_rows(layouts: Layouts, axis: str, mask: Any) -> list[int]:
    """Return the first row with each value of an axis, by ascending value, of the rows that a mask
    selects."""
    rows = np.flatnonzero(mask)
    _, first = np.unique(getattr(layouts, axis)[rows], return_index=True)
    return [int(rows[k]) for k in first]
