"""Split plans as figures: one for each that looks different."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report import style
from dualml.report.model import Run
from dualml.report.splits import arms
from dualml.report.splits.drawing import Drawing
from dualml.report.splits.layers import lines
from dualml.report.style import Figure, slug
from dualml.report.words import Words

MOST, RANKS = 6, 4  # figures, and ranks that fit into one


def chosen(run: Run) -> list[str]:
    """Arms whose plans look different, the first of each look."""
    found: dict[Any, str] = {}
    for arm in arms.split_arms(run):
        if 0 < len(arms.plan(run, arm).get("ranks") or ()) <= RANKS:
            found.setdefault(arms.kind(run, arm), arm)
    return list(found.values())[:MOST]


def same(run: Run, arm: str) -> list[str]:
    """Other arms with the plan of this one, whatever their order and handicap."""

    def key(name: str) -> Any:
        plan = arms.plan(run, name)
        told = ("model", "mesh", "stages", "place", "styles", "trainers", "engine")
        return [plan.get(k) for k in told]

    return [a for a in arms.split_arms(run) if a != arm and key(a) == key(arm)]


def plan_figures(run: Run, words: Words) -> Iterator[Figure]:
    for arm in chosen(run):
        caption = words("splits.figure.plan", arm=arm, model=arms.model(run, arm))
        others = same(run, arm)
        if others:
            more = others if len(others) < 9 else [*others[:8], "…"]
            told = words("splits.figure.same_plan", arms=words("list.comma").join(more))
            caption = words.sentences([caption, told])
        plan, name = arms.plan(run, arm), f"plan-{slug(arm)}"
        svg, width = drawn(plan, name, words)
        alt = words("splits.alt.plan", arm=arm, told=arms.told(run, arm, words))
        yield Figure(name, svg, caption, alt, min(width, style.WIDTH))


def drawn(plan: Mapping[str, Any], name: str, words: Words) -> tuple[str, float]:
    """The SVG of what `SplitPlan.describe` gives, and its width in inches.

    Args:
        name: of the figure, unique on a page.
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
        return style.svg(made, name), width
