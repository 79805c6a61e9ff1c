"""Layouts with their bytes and seconds, before anybody chooses among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualml.planning.planner.layouts import Ints, Layouts
from dualml.planning.planner.memory import Floats, LayoutMemory, estimate_memory
from dualml.planning.planner.plan_request import PlanRequest
from dualml.planning.planner.seconds import UpdateSeconds, seconds


@dataclass(frozen=True)
class PricedLayouts:
    """Layouts of a request, each with its memory and the seconds of an update."""

    request: PlanRequest
    layouts: Layouts
    memory: LayoutMemory
    seconds: UpdateSeconds

    @cached_property
    def update_seconds(self) -> Floats:
        """Seconds of an update, per layout."""
        return self.seconds.total

    @cached_property
    def peak_memory(self) -> Floats:
        """Peak bytes per device (the fullest one), per layout."""
        return self.memory.total

    @cached_property
    def fits(self) -> Any:
        """Whether each layout fits in a device's memory: a bool array, (layouts,)."""
        return self.peak_memory <= self.request.cluster.memory

    @cached_property
    def ranked_rows(self) -> Ints:
        """Rows of the layouts that fit, sorted by time, then by memory."""
        rows = np.flatnonzero(self.fits)
        return np.asarray(rows[np.lexsort((self.peak_memory[rows], self.update_seconds[rows]))])


def price_layouts(request: PlanRequest, layouts: Layouts) -> PricedLayouts:
    """Return the given layouts with bytes and seconds for the model, cluster and engine of a
    request. Whether they are possible is not checked, and their batch may differ from the
    request's."""
    engine = request.engine
    precision = engine.precisions[request.precision]
    shape, cluster, fused = request.shape, request.cluster, request.fused
    return PricedLayouts(
        request,
        layouts,
        estimate_memory(shape, layouts, precision, fused, engine),
        seconds(shape, layouts, cluster, precision, fused, engine),
    )
