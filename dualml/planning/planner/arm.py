"""Conversion of a planned layout into an arm that dualml trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.experiment.arm import Arm
from dualml.experiment.split import Split
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import layers_in_stage
from dualml.planning.planner.shape import Shape

#: Axes of a layout that decide whether dualml trains it.
AXES = (
    *("dp", "pp", "tp", "cp", "sp", "zero", "micro", "recompute", "chunks"),
    *("schedule", "replicate", "reshard"),
)


def arm_from_layout(shape: Shape, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layout as keys of an arm, as in an experiment file; keys whose value would be the
    default are left out.

    Args:
        shape: the model.
        layout: a row of `Layouts.describe`.

    Raises:
        UserError: a layout that dualml does not train, by the axes `AXES`; all others are ignored.

    Example:
        >>> from dualml.planning.planner.zoo import shape_by_name
        >>> x = Layouts.from_axes(8, dp=2, pp=2, zero=1, micro=2)
        >>> arm_from_layout(shape_by_name("gpt"), x.describe(0))["split"]
        {'data': 2, 'cut': ['attention_branch2'], 'micro_batches': 2}
    """
    x = Layouts.from_axes(
        layout["batch"],
        **{key: layout[key] for key in AXES},
    )
    if not DUALML.can_train(x, shape)[0]:
        raise UserError(
            "dualml trains no layout with cp, sp, interleaved stages, hybrid sharding or another "
            "schedule than 1f1b, and ZeRO-2 and 3 only without pp and tp; choose another one, or "
            "--zero 0,1"
        )
    arm: dict[str, Any] = {
        "world_size": int(x.devices[0]),
        "batch_size": layout["batch"],
        "zero": layout["zero"],
        "recompute": layout["recompute"],
    }
    if layout["pp"] * layout["tp"] == 1:
        arm["chunk"] = layout["micro"]
    else:
        arm["split"] = {
            "data": layout["dp"],
            "tensor": layout["tp"],
            "cut": cut_layers(shape, x),
            "micro_batches": layout["micro_batches"],
        }
        arm["split"] = {key: value for key, value in arm["split"].items() if value not in (1, [])}
    return {key: value for key, value in arm.items() if value not in (0, "none")}


def cut_layers(shape: Shape, x: Layouts) -> list[str]:
    """Return the names of the layers at which stages 1, 2, … begin (not stage 0) in the first row
    of ``x``; each begins with a transformer block."""
    layers = [int(layers_in_stage(shape, x, stage)[0]) for stage in range(int(x.pp[0]))]
    return [f"attention_branch{1 + before}" for before in np.cumsum(layers[:-1])]


def layout_from_arm(shape: Shape, arm: Arm) -> Layouts:
    """Return the layout that an arm trains; the reverse of `arm_from_layout`.

    Raises:
        UserError: the arm is not a layout of the planner.
    """
    split = arm.split or Split()
    dp = split.data if arm.split else arm.world_size
    pp = arm.world_size // (dp * split.tensor)
    # A rank processes arm.chunk samples at a time.
    parts = split.micro_batches if arm.split else -(-arm.batch_size // (dp * arm.chunk))
    given = [split.trainers > 1, split.engine == "rpc", bool(split.grid), bool(split.layers)]
    given += [split.sequence, split.context > 1, arm.zero_lower, arm.offload is not None]
    given += [bool(arm.method), arm.kind != "train", pp > 1 and split.schedule != "1f1b"]
    if arm.batch_size % (dp * parts):
        raise UserError(
            f"no layout: batches of {arm.batch_size} do not divide into {dp * parts} equal parts"
        )
    if any(given) or not isinstance(arm.recompute, str):
        raise UserError("no layout: it has a method, a schedule or parts that the planner has not")
    x = Layouts.from_axes(
        arm.batch_size,
        dp=dp,
        pp=pp,
        tp=split.tensor,
        zero=arm.zero,
        micro=arm.batch_size // (dp * parts),
        recompute=arm.recompute,
    )
    if pp > shape.layers or (pp > 1 and list(split.cut) != cut_layers(shape, x)):
        raise UserError("no layout: stages do not begin where the planner cuts")
    return x
