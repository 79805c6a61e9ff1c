"""Prices of published rows by the planner's Python API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np
from pydantic import ValidationError

from dualml.common.errors import UserError
from dualml.planning.planner.cluster import Cluster
from dualml.planning.planner.engine import TORCH, find_engine
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.memory import LayoutMemory, estimate_memory
from dualml.planning.planner.models import ModelEntry
from dualml.planning.planner.seconds import UpdateSeconds, seconds
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import divisors
from dualml.planning.planner.training_engine import RECOMPUTE_OPERATIONS
from planner.rows import PublishedRow
from planner.setting import Setting, make_setting

#: Stages of a device to try where their number is not published.
CHUNKS = (1, 2, 4, 5, 8, 10)
#: Predicted memory over the device's up to which a choice that was not published may have been the
#: one: what ran fitted, and predicted memory errs by as much.
TOLERANCE = 1.15
#: What counted a published memory → the part of the planner's that it is compared with.
COUNTED = {"allocated": "allocated", "reserved": "reserved", "unstated": "reserved"}


@dataclass(frozen=True)
class Price:
    """Predictions of a tool for a row; without a reason both numbers are there.

    Attributes:
        seconds: of an update.
        memory: bytes on the fullest device; 0: the tool does not say.
        needed: least bytes of the fullest device, everything included, of what may have been used.
        limit: bytes of the device.
        reason: why the row has no price.
    """

    seconds: float = 0.0
    memory: float = 0.0
    needed: float = 0.0
    limit: float = 0.0
    reason: str = ""


def price_row(row: PublishedRow) -> Price:
    """Return the planner's price of a row, or why it has none. Of choices that were not published
    the fastest are taken that fit, or the fastest if none fits."""
    try:
        case = make_case(row)
        memory, times = case.memory(), case.price(case.cluster).total
    except (UserError, ValidationError, Unpriced) as error:
        return Price(reason=_first_line(error))
    needed, limit = memory.total, float(case.cluster.memory)
    fits = needed <= TOLERANCE * limit
    best = int(np.where(fits | ~fits.any(), times, np.inf).argmin())
    kind = COUNTED.get(row.memory_kind, "total")
    held = float(getattr(memory, kind)[best])
    return Price(float(times[best]), held, float(needed.min()), limit)


@dataclass(frozen=True)
class PricedCase:
    """Inputs of the planner that express a row.

    Attributes:
        shape: its model.
        layouts: those that may have been used.
        setting: what they are priced with.
    """

    shape: Shape
    layouts: Layouts
    setting: Setting

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that the row used."""
        return self.setting.cluster

    def memory(self) -> LayoutMemory:
        """Return the memory of the fullest device of every layout."""
        return estimate_memory(self.shape, self.layouts, *self.setting.counts)

    def price(self, cluster: Cluster) -> UpdateSeconds:
        """Return the seconds of an update of every layout on a cluster."""
        return seconds(self.shape, self.layouts, cluster, *self.setting.counts)


def make_case(row: PublishedRow) -> PricedCase:
    """Make what the planner prices of a row.

    Raises:
        Unpriced, ValidationError, UserError: the planner cannot express the row.
    """
    return PricedCase(make_shape(row), make_layouts(row), make_setting(row))


def price_memory(row: PublishedRow, shape: Shape, layouts: Layouts) -> LayoutMemory:
    """Return the memory of a row's layouts as its software takes it."""
    return PricedCase(shape, layouts, make_setting(row)).memory()


class Unpriced(Exception):
    """A row has something that the planner cannot express."""


def make_shape(row: PublishedRow) -> Shape:
    """Make the planner's shape of a row's model.

    Raises:
        Unpriced: the planner has no such sizes.
        ValidationError, UserError: it refuses them.
    """
    known = ModelEntry.model_fields
    sizes = {key: value for key, value in row.sizes.items() if key in known}
    if missing := set(row.sizes) - set(sizes):
        raise Unpriced(f"the planner's models have no {', '.join(sorted(missing))}")
    return ModelEntry(**sizes).shape(row.model)


def make_layouts(row: PublishedRow) -> Layouts:
    """Make the published layout, or one for each possible value of what was not published.

    Raises:
        Unpriced: the batch does not divide, or the planner lacks a column that the row needs.
    """
    if row.batch % row.dp:
        raise Unpriced(f"dp {row.dp} does not divide the batch of {row.batch}")
    micros = [row.micro] if row.micro else divisors(row.batch // row.dp)
    chunks = [row.chunks] if row.chunks else list(CHUNKS)
    again = [row.recompute] if row.recompute else ["none", "operations", "full"]
    cases = [
        (b, v, recompute_code(row, r))
        for b, v, r in product(micros, chunks, again)
        if (row.batch // row.dp) % b == 0 and _can_interleave(row, b, v)
    ]
    if not cases:
        raise Unpriced(f"micro-batches of {row.micro} do not divide {row.batch // row.dp}")
    columns = {
        **_fixed_columns(row),
        "micro": [case[0] for case in cases],
        "chunks": [case[1] for case in cases],
        "recompute": [case[2] for case in cases],
    }
    return Layouts(
        **{
            key: np.broadcast_to(np.array(value, np.int64), len(cases)).copy()
            for key, value in columns.items()
        }
    )


def recompute_code(row: PublishedRow, recompute: str) -> int:
    """Return the planner's code of what is recomputed: of everything but the products only where
    its engine knows it, else selective recomputation."""
    if recompute != "operations":
        return RECOMPUTED.index(recompute)
    known = find_engine(row.software) is TORCH
    return RECOMPUTE_OPERATIONS if known else RECOMPUTED.index("selective")


def _can_interleave(row: PublishedRow, micro: int, chunks: int) -> bool:
    """Return whether ``chunks`` stages of each device have a layer and whole groups of
    micro-batches; what was published is not doubted."""
    if chunks == row.chunks:
        return True
    count = row.batch // (row.dp * micro)
    return chunks == 1 or (
        row.pp > 1 and count % row.pp == 0 and row.sizes["layers"] % (row.pp * chunks) == 0
    )


def _fixed_columns(row: PublishedRow) -> Mapping[str, Any]:
    """Return the columns of a row's layout that were published; raise `Unpriced` for those that
    this planner lacks and that are not at their default."""
    fixed = {"dp": row.dp, "pp": row.pp, "tp": row.tp, "cp": row.cp}
    fixed |= {"sp": int(row.sp and row.tp > 1), "zero": row.zero, "batch": row.batch}
    optional = {
        "ep": (row.ep, 1),
        "etp": (row.etp if row.ep > 1 else 0, 0),
        "replicate": (row.replicate, 1),
        "reshard": (int(row.reshard), 1),
    }
    names = {field.name for field in fields(Layouts)}
    for key, (value, default) in optional.items():
        if key in names:
            fixed[key] = value
        elif value != default and key == "ep":
            raise Unpriced(f"the planner's layouts have no {key}")
    return fixed


def _first_line(error: Exception) -> str:
    """Return the first line of an error, of which a validation error names its fields."""
    if isinstance(error, ValidationError):
        return "; ".join(str(problem["msg"]) for problem in error.errors())
    return str(error).splitlines()[0]
