"""One split plan as a figure, for the report and for `dualml split`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualml.report import style
from dualml.report.splits.drawing import Drawing
from dualml.report.splits.layers import lines
from dualml.report.style import Figure
from dualml.report.words import Words


def plan_figure(name: str, plan: Mapping[str, Any], words: Words, caption: str = "") -> Figure:
    """Ranks with their layers and slices, and what an update sends.

    Args:
        name: of the figure, unique on a page.
        plan: what `SplitPlan.describe` gives.
        caption: of the figure.
    """
    boxes = {r["rank"]: lines(plan, r["rank"], words) for r in plan["ranks"]}
    drawing = Drawing(plan, boxes, words)
    width = drawing.width + 0.2
    with style.canvas(width, drawing.height + 0.12) as made:
        made.set_layout_engine("none")
        axes = made.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_xlim(-0.1, drawing.width + 0.1)
        axes.set_ylim(drawing.height + 0.07, -0.05)
        axes.axis("off")
        drawing.draw(axes)
        text = style.svg(made, name)
    mesh = plan["mesh"]
    shape = f"{mesh['data']} × {mesh['pipeline']} × {mesh['tensor']}"
    alt = words("splits.alt.plan", model=plan["model"], n=len(boxes), mesh=shape)
    return Figure(name, text, caption, alt, min(width, style.WIDTH))
