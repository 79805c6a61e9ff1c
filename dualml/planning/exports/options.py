"""Options of training software: name, value, what it stands for; and what cannot be said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.common.json_types import JsonMapping
from dualml.planning.planner.layouts import DEFAULT_AXES, Layouts
from dualml.planning.planner.memory import layers_in_stage
from dualml.planning.planner.plan_request import PlanRequest


@dataclass(frozen=True)
class ExportedOption:
    """One option, with what it stands for; ``section`` is the table that it belongs to."""

    name: str
    value: Any
    meaning: str
    section: str = ""


@dataclass
class ExportedOptions:
    """The options of one software, and sentences about what it cannot express.

    Attributes:
        options: in the order in which they are written.
        left_out: sentences.
    """

    options: list[ExportedOption] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, meaning: str, section: str = "") -> None:
        """Append an option to `options`; ``section`` is the table that it belongs to, empty for the
        top level."""
        self.options.append(ExportedOption(name, value, meaning, section))

    def leave_out(self, sentence: str) -> None:
        """Append a sentence about something that the software cannot express."""
        self.left_out.append(sentence)

    def sections(self) -> Iterator[tuple[str, list[ExportedOption]]]:
        """Yield every section with its options, in the order of their first options."""
        for name in dict.fromkeys(option.section for option in self.options):
            yield name, [option for option in self.options if option.section == name]


def header_lines(
    software: str, request: PlanRequest, layout: JsonMapping, left_out: Sequence[str]
) -> list[str]:
    """Return the lines, without comment characters, that an export begins with: software, model,
    layout, and what is left out."""
    axes = [axis for axis in ("dp", "pp", "tp", "cp", "ep") if layout[axis] > 1 or axis != "ep"]
    mesh = ", ".join(f"{axis} {layout[axis]}" for axis in axes)
    lines = [
        f"{software}",
        f"{request.shape.name} on {request.cluster.devices:,} × {request.device}: {mesh}, "
        f"ZeRO-{layout['zero']}, micro-batch {layout['micro']}, batch {layout['batch']:,}",
        "as planned by dualml plan; data, tokenizer, optimizer and checkpoints are yours",
    ]
    return lines + [f"not expressed: {sentence}" for sentence in left_out]


def stage_sizes(request: PlanRequest, layout: JsonMapping) -> list[int]:
    """Return the number of layers of each pipeline stage, of all its chunks together, for a layout
    that is a row of `Layouts.describe`."""
    axes: dict[str, Any] = {name: layout[name] for name in DEFAULT_AXES}
    x = Layouts.from_axes(layout["batch"], **axes)
    return [
        int(np.asarray(layers_in_stage(request.shape, x, stage))[0])
        for stage in range(layout["pp"])
    ]


def shorter_ends(request: PlanRequest, layout: JsonMapping) -> tuple[int, int]:
    """Return by how many layers the first and the last of all pp · chunks stages are shorter than
    the longest ones: 0 or 1, unless the layout says how many layers they have; (0, 0) where other
    stages are shorter, too."""
    layers, stages = request.shape.layers, layout["pp"] * layout["chunks"]
    most = -(-layers // stages)
    if layout["first_layers"] or layout["last_layers"]:
        ends = (layout["first_layers"] or most, layout["last_layers"] or most)
        most = max(most, -(-(layers - sum(ends)) // max(stages - 2, 1)))
        return max(0, most - ends[0]), max(0, most - ends[1])
    short = -layers % stages
    return (int(short == 2), int(short >= 1)) if short <= 2 else (0, 0)


def sharded_ranks(layout: JsonMapping) -> int:
    """Return the number of devices over which ZeRO shards in a layout, a row of
    `Layouts.describe`."""
    return int(layout["dp"] * layout["cp"] // layout["replicate"])
