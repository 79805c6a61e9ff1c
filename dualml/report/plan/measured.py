"""Measured memory of the ranks of a run compared with the planner's predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.parallel.memory import size_per_parameter
from dualml.parallel.split.mesh import Mesh
from dualml.planning.planner.arm import layout_from_arm
from dualml.planning.planner.engine import DUALML, PrecisionBytes
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.measurements import find_spec
from dualml.planning.planner.memory import stage_memory
from dualml.planning.planner.zoo import shape_from_spec
from dualml.report.blocks import Table
from dualml.report.columns import Columns, make_table
from dualml.report.plan.published import format_signed_percent

#: Framework whose kernels the engine's activations describe.
ACTIVATIONS_OF = "torch"
#: Parts of `dualml.backend.Memory` that are compared.
PARTS = ("weights", "gradients", "state", "activations")


@dataclass(frozen=True)
class MemoryCheck:
    """Measured and predicted memory of one rank of one trial.

    Attributes:
        counted, predicted: part → bytes; activations only if they were measured.
    """

    arm: str
    backend: str
    layout: str
    rank: int
    counted: dict[str, int]
    predicted: dict[str, float]

    def error(self, *parts: str) -> float:
        """Return predicted / counted − 1 of these parts together; 0 if nothing was counted."""
        counted = sum(self.counted[part] for part in parts)
        return sum(self.predicted[part] for part in parts) / counted - 1 if counted else 0.0


def compare_memory(run: RunData) -> Iterator[MemoryCheck]:
    """Yield measured and predicted memory of every rank of one trial (the first successful one that
    measured it) per arm and backend, for arms that are layouts of the planner; activations only on
    PyTorch."""
    for arm, backend in ((arm, backend) for arm in run.arms for backend in run.backends):
        trials = [t for t in run.select(arm, backend) if t.device_memory]
        if not trials:
            continue
        settings = run.settings[arm]
        try:
            shape = shape_from_spec(find_spec(run, settings), settings.batch_size)
            x = layout_from_arm(shape, settings)
        except UserError:
            continue
        width = np.dtype(str(run.environment[backend]["dtype"])).itemsize
        element = 2 if settings.plan_precision.is_low else width
        each = size_per_parameter(width, len(settings.rule.state_keys))
        precision = PrecisionBytes(**vars(each), element=element)
        # Stages count what is saved between passes, which excludes the logits.
        staged = settings.split is not None or settings.zero > 0
        mesh = Mesh(int(x.dp[0]), int(x.pp[0]), int(x.tp[0]))
        for rank, counted in enumerate(trials[0].device_memory):
            stage = mesh.coordinates(rank)[1] if settings.split else 0
            m = stage_memory(shape, x, precision, np.array([stage]), engine=DUALML).describe(0)
            said = {
                "weights": m["weights"],
                "gradients": m["gradients"],
                "state": m["optimizer"],
                "activations": m["activations"] + (0 if staged else m["logits"]),
            }
            seen = {part: n for part in PARTS if (n := getattr(counted, part)) is not None}
            if run.framework(backend) != ACTIVATIONS_OF:
                seen.pop("activations", None)
            yield MemoryCheck(
                arm, backend, format_layout(x), rank, seen, {part: said[part] for part in seen}
            )


def format_layout(x: Layouts) -> str:
    """Format the first of some layouts as ``dp 2 · pp 2 · tp 1, ZeRO-1, b 4, full``: the mesh, the
    ZeRO stage, the samples of a micro-batch, the recomputation."""
    of = x.describe(0)
    mesh = " · ".join(f"{axis} {of[axis]}" for axis in ("dp", "pp", "tp"))
    return f"{mesh}, ZeRO-{of['zero']}, b {of['micro']}, {RECOMPUTED[x.recompute[0]]}"


def describe(rows: Sequence[MemoryCheck]) -> list[JsonObject]:
    """Return each row as a JSON object with the fields of `MemoryCheck`."""
    return [vars(row) for row in rows]


def memory_table(rows: Sequence[MemoryCheck], words: Messages) -> Table:
    """Return a table with a row for every arm and backend: counted / predicted bytes of the rank
    with most counted memory, and the error of the part that is furthest off."""
    fullest: dict[tuple[str, str], MemoryCheck] = {}
    for row in rows:
        key = (row.arm, row.backend)
        if key not in fullest or sum(fullest[key].counted.values()) < sum(row.counted.values()):
            fullest[key] = row
    read: Columns[MemoryCheck] = {
        ("arm", "backend", "layout"): attrgetter("arm", "backend", "layout"),
        tuple(f"{part}:" for part in PARTS): lambda row: (
            f"{row.counted[part]:,} / {row.predicted[part]:,.0f}" if part in row.counted else "–"
            for part in PARTS
        ),
        "off:": lambda row: format_signed_percent(max(map(row.error, row.counted), key=abs)),
    }
    caption = words("planner.table.held")
    return make_table(words, "held", fullest.values(), read, caption, "planner.column.{}")
