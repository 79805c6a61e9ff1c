"""Planned layouts as options of the software that trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dualml.common.errors import UserError, did_you_mean
from dualml.common.json_types import JsonMapping
from dualml.planning.exports.deepspeed import render_deepspeed
from dualml.planning.exports.megatron import render_megatron
from dualml.planning.exports.mindformers import render_mindformers
from dualml.planning.exports.torchtitan import render_torchtitan
from dualml.planning.planner.plan_request import PlanRequest

EXPORTS: Mapping[str, Callable[[PlanRequest, JsonMapping], str]] = {
    "megatron": render_megatron,
    "torchtitan": render_torchtitan,
    "deepspeed": render_deepspeed,
    "mindformers": render_mindformers,
}


def export_layout(name: str, request: PlanRequest, layout: JsonMapping) -> str:
    """Return the text that gives a layout as options of the software ``name`` (a key of `EXPORTS`),
    each with what it stands for, and says what the software cannot express.

    Args:
        request: the model, the devices and the precision.
        layout: a row of `Layouts.describe`.

    Raises:
        UserError: an unknown name.
    """
    if name not in EXPORTS:
        raise UserError(
            f"--export is {', '.join(EXPORTS)}; received {name!r}{did_you_mean(name, EXPORTS)}"
        )
    return EXPORTS[name](request, layout)
