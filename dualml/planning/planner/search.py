"""Search over layouts: which fit, which is fastest, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.planning.planner.arm import arm_from_layout
from dualml.planning.planner.engine import DUALML, MEGATRON
from dualml.planning.planner.layouts import RECOMPUTATIONS, Ints, Layouts
from dualml.planning.planner.memory import Floats, LayoutMemory, estimate_memory
from dualml.planning.planner.request import PlanRequest
from dualml.planning.planner.seconds import UpdateSeconds, seconds
from dualml.planning.planner.space import enumerate_layouts

#: Bound → parts of the seconds that vanish without it.
BOUNDS: Mapping[str, tuple[str, ...]] = {
    "bubble": ("bubble",),
    "links": ("tensor", "pipeline", "replicas"),
}
#: A bound that costs less than this share of the time is not reported as the limit.
MIN_BOUND_SHARE = 0.02


@dataclass(frozen=True)
class LayoutPlan:
    """The answer to a request: every layout with its bytes and seconds."""

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

    @cached_property
    def best_row(self) -> int:
        """Row of the fastest layout that fits.

        Raises:
            UserError: nothing fits; the message names the closest layout and what it lacks.
        """
        if not len(self.ranked_rows):
            raise UserError(self.no_fit_message())
        return int(self.ranked_rows[0])

    @cached_property
    def meshes(self) -> list[int]:
        """Row of the fastest layout that fits for every mesh (dp, pp, tp, cp), sorted by time;
        meshes without one are left out."""
        x, seen, rows = self.layouts, set(), []
        for row in self.ranked_rows:
            mesh = tuple(int(axis[row]) for axis in (x.dp, x.pp, x.tp, x.cp))
            if mesh not in seen:
                seen.add(mesh)
                rows.append(int(row))
        return rows

    @cached_property
    def front(self) -> list[int]:
        """Rows of the Pareto front of memory and time, by ascending memory, also beyond the
        limit."""
        order = np.lexsort((self.update_seconds, self.peak_memory))
        best = np.minimum.accumulate(self.update_seconds[order])
        first = np.r_[True, best[1:] < best[:-1]]
        return [int(row) for row in order[first]]

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Bound → share, from 0 to 1, of the fastest fitting layout's time that the best layout
        would save without this bound: no memory limit, no bubble, or messages that take no time."""
        now = float(self.update_seconds[self.best_row])
        without = {"memory": float(self.update_seconds.min())}
        for name, parts in BOUNDS.items():
            spared = self.update_seconds - sum(getattr(self.seconds, part) for part in parts)
            without[name] = float(spared[self.fits].min())
        return {name: 1 - best / now for name, best in without.items()}

    @cached_property
    def binding(self) -> str:
        """The bound that costs most. If none costs two percent of the time, the larger part of the
        device's work: ``products`` or ``traffic``."""
        name = max(self.bounds, key=lambda bound: self.bounds[bound])
        if self.bounds[name] >= MIN_BOUND_SHARE:
            return name
        return (
            "products" if self.time_share("products") >= self.time_share("traffic") else "traffic"
        )

    def time_share(self, part: str) -> float:
        """Return the share, from 0 to 1, of a part in the time of the fastest layout that fits."""
        return float(
            getattr(self.seconds, part)[self.best_row] / self.update_seconds[self.best_row]
        )

    @property
    def flops(self) -> float:
        """Operations per update on all devices together, without recomputation."""
        return self.request.shape.flops(self.request.batch, "none", self.request.fused)

    def utilisation(self, row: int) -> float:
        """Return the model FLOPs utilisation (MFU) of a row, as a fraction: the share of the
        devices' peak that the model's own operations use."""
        cluster = self.request.cluster
        return self.flops / (float(self.update_seconds[row]) * cluster.devices * cluster.peak)

    def no_fit_message(self) -> str:
        """Return the error message that nothing fits, without checking that: the layout with least
        memory and what it lacks."""
        from dualml.planning.cost.units import format_bytes

        row = int(self.peak_memory.argmin())
        request, held, limit = self.request, self.peak_memory[row], self.request.cluster.memory
        of = self.memory.describe(row)
        parts = ", ".join(f"{key} {format_bytes(size)}" for key, size in of.items() if size > 0)
        return (
            f"no layout of {request.cluster.devices:,} devices holds {request.shape.name} in "
            f"{format_bytes(limit)}: the nearest ({self.mesh(row)}, ZeRO-{self.layouts.zero[row]}, "
            f"recomputation {RECOMPUTATIONS[self.layouts.recompute[row]]}) needs "
            f"{format_bytes(held)}, {format_bytes(held - limit)} too much ({parts}); take more "
            "devices, more memory, a "
            "shorter sequence, or vary more (--zero, --recompute, --tensor, --context)"
        )

    def mesh(self, row: int) -> str:
        """Format the mesh of a row as ``dp 8 · pp 4 · tp 8``; cp is named only above 1."""
        x = self.layouts.describe(row)
        axes = ("dp", "pp", "tp", "cp")[: 4 if x["cp"] > 1 else 3]
        return " · ".join(f"{axis} {x[axis]}" for axis in axes)

    def describe_row(self, row: int) -> dict[str, Any]:
        """Return the layout in ``row``, which need not fit, with its bytes and seconds as
        JSON-compatible values."""
        layers = self.request.shape.layers
        return {
            **self.layouts.describe(row),
            "uneven": bool(layers % self.layouts.pp[row]),
            "fits": bool(self.fits[row]),
            "memory_bytes": float(self.peak_memory[row]),
            "memory": self.memory.describe(row),
            "seconds": float(self.update_seconds[row]),
            "parts": self.seconds.describe(row),
            "utilisation": self.utilisation(row),
            "teraflops_per_device": self.utilisation(row) * self.request.cluster.peak / 1e12,
        }

    def describe(self, top: int) -> JsonObject:
        """Return as JSON-compatible values the request, the numbers of layouts considered and
        fitting, the best layout, the fastest ones by mesh, at most ``top``, what limits the best
        one, and the whole Pareto front, also beyond the memory limit.

        Raises:
            UserError: nothing fits.
        """
        best = self.describe_row(self.best_row)
        if self.request.engine is DUALML:
            best["arm"] = arm_from_layout(self.request.shape, self.layouts.describe(self.best_row))
        return {
            **self.request.describe(),
            "considered": len(self.layouts),
            "fitting": len(self.ranked_rows),
            "best": best,
            "plans": [self.describe_row(row) for row in self.meshes[:top]],
            "binding": self.binding,
            "bounds": self.bounds,
            "front": [self.describe_row(row) for row in self.front],
        }


def search_layouts(request: PlanRequest) -> LayoutPlan:
    """Price every layout of a request that its engine can train, also those that do not fit in
    memory; with attention that saves no scores, those with selective recomputation are left out.

    Raises:
        UserError: no layout divides what must be divided, or the engine trains none, or there are
            more than a million.

    Source: the search of Narayanan et al. 2021, section 3, done by enumeration.
    """
    cluster, engine = request.cluster, request.engine
    precision = engine.precisions[request.precision]
    layouts = enumerate_layouts(request.shape, cluster.devices, request.batch, request.choices)
    # Attention that saves no scores has none to recompute.
    if request.fused:
        layouts = layouts.select_rows(layouts.recompute != 1)
    layouts = layouts.select_rows(engine.can_train(layouts, request.shape))
    if not len(layouts):
        raise UserError(
            f"no layout of {cluster.devices:,} devices that {engine.name} trains: it has no ZeRO-2 "
            "and 3 with pp or tp, and no --context or --interleave; vary more (--zero, --batch), "
            f"or take --engine {MEGATRON.name}"
        )
    return LayoutPlan(
        request,
        layouts,
        estimate_memory(request.shape, layouts, precision, request.fused, engine),
        seconds(request.shape, layouts, cluster, precision, request.fused, engine),
    )
