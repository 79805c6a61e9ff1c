"""Search over layouts: which fit, which is fastest, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualml.errors import UserError
from dualml.planner.arm import arm_of
from dualml.planner.engine import DUALML, MEGATRON
from dualml.planner.layouts import RECOMPUTED, Ints, Layouts, enumerate_layouts
from dualml.planner.memory import Floats, Memory, memory
from dualml.planner.request import PlanRequest
from dualml.planner.seconds import Seconds, seconds

#: Bound → parts of the seconds that vanish without it.
BOUNDS: Mapping[str, tuple[str, ...]] = {
    "bubble": ("bubble",),
    "links": ("tensor", "pipeline", "replicas"),
}
#: A bound that costs less than this share of the time is not reported as the limit.
LEAST = 0.02


@dataclass(frozen=True)
class Plan:
    """The answer to a request: every layout with its bytes and seconds."""

    request: PlanRequest
    layouts: Layouts
    memory: Memory
    seconds: Seconds

    @cached_property
    def total(self) -> Floats:
        """Seconds of an update, per layout."""
        return self.seconds.total

    @cached_property
    def held(self) -> Floats:
        """Peak bytes per device (the fullest one), per layout."""
        return self.memory.total

    @cached_property
    def fits(self) -> Any:
        """Whether each layout fits in memory."""
        return self.held <= self.request.cluster.memory

    @cached_property
    def ranked(self) -> Ints:
        """Rows of the layouts that fit, sorted by time, then by memory."""
        rows = np.flatnonzero(self.fits)
        return np.asarray(rows[np.lexsort((self.held[rows], self.total[rows]))])

    @cached_property
    def best(self) -> int:
        """Row of the fastest layout that fits.

        Raises:
            UserError: nothing fits; the message names the closest layout and what it lacks.
        """
        if not len(self.ranked):
            raise UserError(self.missed())
        return int(self.ranked[0])

    @cached_property
    def meshes(self) -> list[int]:
        """Fastest row of every mesh that fits, sorted by time."""
        x, seen, rows = self.layouts, set(), []
        for row in self.ranked:
            mesh = tuple(int(axis[row]) for axis in (x.dp, x.pp, x.tp, x.cp))
            if mesh not in seen:
                seen.add(mesh)
                rows.append(int(row))
        return rows

    @cached_property
    def front(self) -> list[int]:
        """Rows of the Pareto front of memory and time, by ascending memory, also beyond the
        limit."""
        order = np.lexsort((self.total, self.held))
        best = np.minimum.accumulate(self.total[order])
        first = np.r_[True, best[1:] < best[:-1]]
        return [int(row) for row in order[first]]

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Bound → share of the winner's time that the best layout would save without it: no memory
        limit, no bubble, or messages that take no time."""
        now = float(self.total[self.best])
        without = {"memory": float(self.total.min())}
        for name, parts in BOUNDS.items():
            spared = self.total - sum(getattr(self.seconds, part) for part in parts)
            without[name] = float(spared[self.fits].min())
        return {name: 1 - best / now for name, best in without.items()}

    @cached_property
    def binding(self) -> str:
        """The bound that costs most. If none costs two percent, the dominant part of the device's
        work: ``products`` or ``traffic``."""
        name = max(self.bounds, key=lambda bound: self.bounds[bound])
        if self.bounds[name] >= LEAST:
            return name
        return "products" if self.share("products") >= self.share("traffic") else "traffic"

    def share(self, part: str) -> float:
        """Return the share of a part in the winner's time."""
        return float(getattr(self.seconds, part)[self.best] / self.total[self.best])

    @property
    def flops(self) -> float:
        """Operations per update, without recomputation."""
        return self.request.shape.flops(self.request.batch, "none", self.request.fused)

    def utilisation(self, row: int) -> float:
        """Return the model FLOPs utilisation (MFU): the share of the devices' peak that the model's
        own operations use."""
        cluster = self.request.cluster
        return self.flops / (float(self.total[row]) * cluster.devices * cluster.peak)

    def missed(self) -> str:
        """Return the message that nothing fits: the layout with least memory and what it lacks."""
        from dualml.cost.units import told_bytes

        row = int(self.held.argmin())
        request, held, limit = self.request, self.held[row], self.request.cluster.memory
        of = self.memory.describe(row)
        parts = ", ".join(f"{key} {told_bytes(size)}" for key, size in of.items() if size > 0)
        return (
            f"no layout of {request.cluster.devices:,} devices holds {request.shape.name} in "
            f"{told_bytes(limit)}: the nearest ({self.mesh(row)}, ZeRO-{self.layouts.zero[row]}, "
            f"recomputation {RECOMPUTED[self.layouts.recompute[row]]}) needs {told_bytes(held)}, "
            f"{told_bytes(held - limit)} too much ({parts}); take more devices, more memory, a "
            "shorter sequence, or vary more (--zero, --recompute, --tensor, --context)"
        )

    def mesh(self, row: int) -> str:
        """Format the mesh of a row as ``dp 8 · pp 4 · tp 8``."""
        x = self.layouts.describe(row)
        axes = ("dp", "pp", "tp", "cp")[: 4 if x["cp"] > 1 else 3]
        return " · ".join(f"{axis} {x[axis]}" for axis in axes)

    def row(self, row: int) -> dict[str, Any]:
        """Return one layout with its bytes and seconds as JSON-compatible values."""
        layers = self.request.shape.layers
        return {
            **self.layouts.describe(row),
            "uneven": bool(layers % self.layouts.pp[row]),
            "fits": bool(self.fits[row]),
            "memory_bytes": float(self.held[row]),
            "memory": self.memory.describe(row),
            "seconds": float(self.total[row]),
            "parts": self.seconds.describe(row),
            "utilisation": self.utilisation(row),
            "teraflops_per_device": self.utilisation(row) * self.request.cluster.peak / 1e12,
        }

    def describe(self, top: int) -> dict[str, Any]:
        """Return the answer as JSON-compatible values.

        Raises:
            UserError: nothing fits.
        """
        best = self.row(self.best)
        if self.request.engine is DUALML:
            best["arm"] = arm_of(self.request.shape, self.layouts.describe(self.best))
        return {
            **self.request.describe(),
            "considered": len(self.layouts),
            "fitting": len(self.ranked),
            "best": best,
            "plans": [self.row(row) for row in self.meshes[:top]],
            "binding": self.binding,
            "bounds": self.bounds,
            "front": [self.row(row) for row in self.front],
        }


def plan(request: PlanRequest) -> Plan:
    """Price every layout of a request.

    Raises:
        UserError: no layout divides what must be divided.

    Source: the search of Narayanan et al. 2021, section 3, done by enumeration.
    """
    cluster, engine = request.cluster, request.engine
    precision = engine.precisions[request.precision]
    layouts = enumerate_layouts(request.shape, cluster.devices, request.batch, request.choices)
    # Attention that saves no scores has none to recompute.
    if request.fused:
        layouts = layouts.take(layouts.recompute != 1)
    layouts = layouts.take(engine.trains(layouts))
    if not len(layouts):
        raise UserError(
            f"no layout of {cluster.devices:,} devices that {engine.name} trains: it has no ZeRO-2 "
            "and 3 with pp or tp, and no --context or --interleave; vary more (--zero, --batch), "
            f"or take --engine {MEGATRON.name}"
        )
    return Plan(
        request,
        layouts,
        memory(request.shape, layouts, precision, request.fused, engine),
        seconds(request.shape, layouts, cluster, precision, request.fused, engine),
    )
