"""Search over layouts: every one that a request allows, priced."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from dualml.common.errors import UserError
from dualml.planning.planner.engine import DUALML, MEGATRON
from dualml.planning.planner.layout_plan import LayoutPlan
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.pins import select_pinned
from dualml.planning.planner.plan_request import PlanRequest
from dualml.planning.planner.priced_layouts import price_layouts
from dualml.planning.planner.space import enumerate_layouts


def search_layouts(request: PlanRequest) -> LayoutPlan:
    """Price every layout of a request that its engine can train and that has the pinned axes,
    also those that do not fit in memory; with attention that saves no scores, layouts with
    selective recomputation are left out unless it is pinned. The layout that the request names
    is always among them, as the only one if the search finds none.

    Raises:
        UserError: the request names no layout, and none divides what must be divided, the engine
            trains none, none has the pins, or there are more than a million; or the batch does not
            divide into the named layout's micro-batches.

    Source: the search of Narayanan et al. 2021, section 3, done by enumeration.
    """
    if request.layout is None:
        return _plan(request, _enumerate(request))
    named = Layouts.from_axes(request.batch, **request.layout)
    try:
        layouts = _join(_enumerate(request), named)
    except UserError:  # the search has none, and the named one is still a layout
        layouts = named
    return _plan(request, layouts, len(layouts) - 1)


def _plan(request: PlanRequest, layouts: Layouts, row: int | None = None) -> LayoutPlan:
    """Price the layouts and return the plan; ``row`` is the row of the layout that the request
    names, None if it names none."""
    priced = price_layouts(request, layouts)
    return LayoutPlan(request, layouts, priced.memory, priced.seconds, row)


def _enumerate(request: PlanRequest) -> Layouts:
    """Return the layouts that the search of a request compares; raise `UserError` if there are
    none."""
    cluster, engine = request.cluster, request.engine
    layouts = enumerate_layouts(request.shape, cluster.devices, request.batch, request.choices)
    # Attention that saves no scores has none to recompute.
    if request.fused and request.pins.get("recompute") != "selective":
        layouts = layouts.select_rows(layouts.recompute != 1)
    layouts = layouts.select_rows(engine.can_train(layouts, request.shape))
    if not len(layouts):
        lacks = " it has no ZeRO-2 and 3 with pp or tp, and no --context or --interleave;"
        raise UserError(
            f"no layout of {cluster.devices:,} devices that {engine.name} trains:"
            f"{lacks if engine is DUALML else ''} vary more (--zero, --recompute, --batch), or "
            f"take --engine {MEGATRON.name}"
        )
    return select_pinned(layouts, request)


def _join(layouts: Layouts, named: Layouts) -> Layouts:
    """Return a table with the layout ``named`` as its last row, and nowhere else."""
    columns = {f.name: (getattr(layouts, f.name), getattr(named, f.name)) for f in fields(Layouts)}
    differs = np.logical_or.reduce([column != value for column, value in columns.values()])
    return Layouts(*(np.r_[column[differs], value] for column, value in columns.values()))
