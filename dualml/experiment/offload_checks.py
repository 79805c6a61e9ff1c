"""Checks of arms with ``offload``, see `dualml.parallel.offload`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dualml.algorithms.model.spec import ModelSpec
from dualml.algorithms.optim import OptimizerSpec
from dualml.common.errors import UserError
from dualml.parallel.aggregation.buckets import BUCKET_BYTES
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.memory import estimate_offload_footprint
from dualml.parallel.offload.settings import Offload
from dualml.parallel.zero.settings import Sharding
from dualml.parallel.zero.units import units_of

#: Bytes per number in `Offload.budget_bytes`. The reference uses eight, so that its bytes count
#: half.
WIDTH = 4


def unit_stage(zero: int, offload: Offload) -> int:
    """Return the ZeRO stage whose units the ranks have: the arm's ``zero`` or, if that is 0, the
    lowest stage that suffices for offloading by one rank: 3 for weights, else 1."""
    return zero or (3 if offload.is_offloaded("weights") else 1)


def with_default_units(sharding: Sharding, settings: Aggregation) -> Sharding:
    """Return ``sharding`` with the default division into several units (``bucket_bytes`` None),
    unless the arm sets ``bucket_bytes``: a single unit would be brought in all at once. The input
    stays."""
    said = settings.bucket_bytes != BUCKET_BYTES
    return sharding if said else replace(sharding, bucket_bytes=None)


def check_offload(
    offload: Offload,
    *,
    zero: int,
    lower: bool,
    world_size: int,
    settings: Aggregation,
    rule: OptimizerSpec,
) -> None:
    """Raise `UserError` for settings of an arm that exclude offloading, or one another.

    Args:
        zero: ZeRO stage of the arm, 0 without ZeRO.
        lower: whether ranks hold weights in low precision.
        settings: the arm's aggregation.
        rule: the arm's optimizer.
    """
    kind: Literal["state", "weights"] = "weights" if offload.is_offloaded("weights") else "state"
    if world_size > 1 and (not zero or (kind == "weights" and zero != 3)):
        raise UserError(
            f"offload.{kind} = {offload.place(kind)} is for units sharded over ranks: with "
            f"{world_size} ranks set zero = {'3' if kind == 'weights' else '1, 2 or 3'}; "
            f"received zero = {zero}"
        )
    if lower:
        raise UserError(
            "offload moves float32 weights and state; zero_param_dtype = precision keeps a "
            "second copy of the weights beside them: leave out zero_param_dtype"
        )
    if world_size == 1 and settings.strategy != Aggregation().strategy:
        raise UserError(
            f"offload and strategy = {settings.strategy}: one rank has nobody to combine with; "
            "leave out aggregation.strategy"
        )
    if settings.overlap and (world_size == 1 or offload.is_offloaded("weights")):
        raise UserError(
            "offload reads weights ahead by itself (offload.overlap), and one rank has nobody to "
            "gather from; leave out aggregation.overlap"
        )
    if offload.is_offloaded("state") and not rule.state_keys:
        raise UserError(
            f"offload.state = {offload.state}: optimizer {rule.name} has no state to keep "
            "elsewhere; leave state out, or use another optimizer, such as adam"
        )


def check_budget(
    offload: Offload, spec: ModelSpec, rule: OptimizerSpec, sharding: Sharding, world_size: int
) -> None:
    """Raise `UserError`, with remedies, if the buffers and offloaded values of a rank of
    ``world_size`` exceed ``offload.budget_bytes`` of host memory, at four bytes a number; without a
    budget nothing is checked."""
    if not offload.budget_bytes:
        return
    units = units_of(spec, sharding.bucket_bytes, world_size)
    own = estimate_offload_footprint(units, world_size, offload, len(rule.state_keys))
    if WIDTH * own.host <= offload.budget_bytes:
        return
    longest = max(unit.length for unit in units)
    remedies = [
        "raise it",
        *(
            ["keep on disk what is kept in host memory"]
            if "host" in (offload.state, offload.weights)
            else []
        ),
        *(
            ["set overlap = false (one buffer in place of two)"]
            if "disk" in (offload.state, offload.weights) and offload.overlap
            else []
        ),
        *(
            [f"set aggregation.bucket_bytes below {WIDTH * longest:,} for smaller units"]
            if sharding.bucket_bytes != 0
            else []
        ),
    ]
    raise UserError(
        f"offload.budget_bytes = {offload.budget_bytes:,}, but host memory has to hold "
        f"{WIDTH * own.host:,} bytes, and {WIDTH * own.largest:,} at once for the largest of "
        f"{len(units)} units; {', or '.join(remedies)}"
    )
