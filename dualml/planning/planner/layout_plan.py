"""The answer of a search: every layout with its bytes and seconds, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.planning.planner.alternatives import fastest_overall, nearest_faster
from dualml.planning.planner.arm import arm_from_layout
from dualml.planning.planner.bottleneck import (
    BUBBLE,
    binding_bound,
    group_shares,
    message_parts,
)
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layouts import RECOMPUTATIONS
from dualml.planning.planner.priced_layouts import PricedLayouts
from dualml.planning.planner.utilisation import hardware_flops, model_flops

#: Bound → parts of the seconds that vanish without it, of a layout's parts.
FREE_PARTS: Mapping[str, Callable[[Mapping[str, float]], Sequence[str]]] = {
    "bubble": lambda _: (BUBBLE,),
    "links": message_parts,
}


@dataclass(frozen=True)
class LayoutPlan(PricedLayouts):
    """The answer to a request: every layout with its bytes and seconds.

    Attributes:
        layout_row: row of the layout that the request names; None if it names none.
    """

    layout_row: int | None = None

    @cached_property
    def best_row(self) -> int:
        """Row of the fastest layout that fits; if nothing fits, of the layout that the request
        names.

        Raises:
            UserError: nothing fits, and the request names no layout; the message names the closest
                one and what it lacks.
        """
        if len(self.ranked_rows):
            return int(self.ranked_rows[0])
        if self.layout_row is None:
            raise UserError(self.no_fit_message())
        return self.layout_row

    @property
    def answer_row(self) -> int:
        """Row of the layout that the answer is about: the one that the request names, or the best
        one."""
        return self.best_row if self.layout_row is None else self.layout_row

    @cached_property
    def mesh_rows(self) -> list[int]:
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
    def front_rows(self) -> list[int]:
        """Rows of the Pareto front of memory and time, by ascending memory, also beyond the
        limit."""
        order = np.lexsort((self.update_seconds, self.peak_memory))
        best = np.minimum.accumulate(self.update_seconds[order])
        first = np.r_[True, best[1:] < best[:-1]]
        return [int(row) for row in order[first]]

    @cached_property
    def unbound_rows(self) -> dict[str, int]:
        """Bound → row of the layout that would be fastest without it: with no memory limit, no
        bubble, or messages that take no time."""
        rows = {"memory": int(self.update_seconds.argmin())}
        for name, select in FREE_PARTS.items():
            parts = [getattr(self.seconds, part) for part in select(vars(self.seconds))]
            spared = self.update_seconds - sum(parts)
            rows[name] = int(np.where(self.fits | ~self.fits.any(), spared, np.inf).argmin())
        return rows

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Bound → share, from 0 to 1, of the fastest fitting layout's time that the best layout
        would save without this bound; see `unbound_rows`."""
        now = float(self.update_seconds[self.best_row])
        free = {"memory": (), **{name: of(vars(self.seconds)) for name, of in FREE_PARTS.items()}}
        without = {
            name: float(self.update_seconds[row])
            - sum(float(getattr(self.seconds, part)[row]) for part in free[name])
            for name, row in self.unbound_rows.items()
        }
        return {name: max(0.0, 1 - best / now) for name, best in without.items()}

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares, from 0 to 1, of work, bubble and links in the time of the layout that the answer
        is about."""
        return group_shares(self.seconds.describe(self.answer_row))

    @cached_property
    def binding(self) -> str:
        """Name of the bound that costs the answer's layout most, as `bottleneck.binding_bound`
        returns it: by the parts of its own time, or ``memory``; if the request names the layout,
        ``recompute`` takes the place of ``memory``."""
        memory = self.bounds["memory"] if self.layout_row is None else None
        return binding_bound(self.seconds.describe(self.answer_row), memory)

    def time_share(self, part: str) -> float:
        """Return the share, from 0 to 1, of a part in the time of the layout that the answer is
        about."""
        row = self.answer_row
        return float(getattr(self.seconds, part)[row] / self.update_seconds[row])

    def utilisation(self, row: int) -> float:
        """Return the model FLOPs utilisation (MFU) of a row, as a fraction of the devices' peak;
        see `utilisation.model_flops`."""
        return self._share_of_peak(model_flops(self.request.shape, self.request.batch), row)

    def hardware_utilisation(self, row: int) -> float:
        """Return the hardware FLOPs utilisation of a row, as a fraction of the devices' peak; see
        `utilisation.hardware_flops`."""
        request, recompute = self.request, RECOMPUTATIONS[self.layouts.recompute[row]]
        flops = hardware_flops(request.shape, request.batch, recompute, request.fused)
        return self._share_of_peak(flops, row)

    def _share_of_peak(self, flops: float, row: int) -> float:
        """Return the share of the devices' peak that ``flops`` operations per update use."""
        cluster = self.request.cluster
        return flops / (float(self.update_seconds[row]) * cluster.devices * cluster.peak)

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
            "devices, more memory, a shorter sequence, or vary more (--zero, --recompute, "
            "--tensor, --context)"
        )

    def mesh(self, row: int) -> str:
        """Format the mesh of a row as ``dp 8 · pp 4 · tp 8``; cp and ep are named only above 1."""
        x = self.layouts.describe(row)
        more = [axis for axis in ("cp", "ep") if x[axis] > 1]
        return " · ".join(f"{axis} {x[axis]}" for axis in ("dp", "pp", "tp", *more))

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
            "hardware_utilisation": self.hardware_utilisation(row),
            "teraflops_per_device": self.utilisation(row) * self.request.cluster.peak / 1e12,
        }

    def describe(self, top: int) -> JsonObject:
        """Return as JSON-compatible values the request, the numbers of layouts considered and
        fitting, the best layout, the fastest ones by mesh, at most ``top``, what limits the answer,
        the layout that the request names with faster ones, and the whole Pareto front, also beyond
        the memory limit.

        Raises:
            UserError: nothing fits, and the request names no layout.
        """
        best = self.describe_row(self.best_row)
        if self.request.engine is DUALML:
            best["arm"] = arm_from_layout(self.request.shape, self.layouts.describe(self.best_row))
        named = {} if self.layout_row is None else {"layout": self._describe_layout()}
        return {
            **self.request.describe(),
            "considered": len(self.layouts),
            "fitting": len(self.ranked_rows),
            "best": best,
            **named,
            "plans": [self.describe_row(row) for row in self.mesh_rows[:top]],
            "binding": self.binding,
            "bounds": self.bounds,
            "shares": self.shares,
            "front": [self.describe_row(row) for row in self.front_rows],
        }

    def _describe_layout(self) -> JsonObject:
        """Return the layout that the request names as JSON-compatible values, with the nearest
        faster ones and the fastest of all."""
        row = self.answer_row
        near, best = nearest_faster(self, row), fastest_overall(self, row)
        overall = [] if best is None else [best]
        return {
            **self.describe_row(row),
            "nearest_faster": [vars(each) | self.describe_row(each.row) for each in near],
            "fastest": [vars(each) | self.describe_row(each.row) for each in overall],
        }
