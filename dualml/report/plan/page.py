"""A plan as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.common.version import __version__
from dualml.common.words import Messages
from dualml.planning.cost.units import format_bytes, format_seconds
from dualml.planning.planner.layout_plan import LayoutPlan
from dualml.report.blocks import Block, Page, Prose, SectionBlock, VerdictBlock
from dualml.report.figure import (
    Axis,
    Bar,
    Figure,
    LegendEntry,
    LineMark,
    Mark,
    Panel,
    ReferenceLine,
    SeriesId,
)
from dualml.report.plan import tables as shown
from dualml.report.plan.sentences import explain_plan
from dualml.report.presentation import stacked_bars

#: Colours of the parts of an update, in the order of the bars.
COLOURS = {
    "products": "forward",
    "traffic": "steel",
    "recompute": "backward",
    "tensor": "plum",
    "launches": "sand",
    "pipeline": "lilac",
    "replicas": "amber",
    "update": "sage",
    "bubble": "silver",
}
GB = 1e9


def make_page(plan: LayoutPlan, top: int, words: Messages) -> Page:
    """Return the page of a plan: the answer, the Pareto front, and the breakdown of time of the
    ``top`` best meshes. Raise `UserError` if no layout fits and the request names none."""
    request = plan.request
    about = {
        "model": request.shape.name,
        "devices": f"{request.cluster.devices:,}",
        "device": request.device,
        "memory": format_bytes(request.cluster.memory),
    }
    answer, *reasons = explain_plan(plan, words)
    rows = plan.mesh_rows[:top]
    first: list[Block] = [
        VerdictBlock(answer, "good" if plan.fits[plan.answer_row] else "bad"),
        *map(Prose, reasons),
        make_front_figure(plan, words),
        *(Prose(text, small=True) for text in shown.request_lines(plan, words)),
        Prose(words("planner.assumed"), small=True),
    ]
    tables: list[Block] = [
        shown.layouts_table(
            "plans", plan, rows, words, shown.considered_sentence(plan, len(rows), words)
        ),
        make_time_figure(plan, rows, words),
        shown.layouts_table("front", plan, shown.sample_front(plan), words, words("planner.front")),
    ]
    return Page(
        lang=words.lang,
        title=words("planner.heading", **about),
        question=words("planner.question", **about),
        blocks=[
            SectionBlock("summary", "", first),
            SectionBlock("plans", words("planner.plans"), tables),
        ],
        footer=words("planner.footer", version=__version__),
    )


def make_front_figure(plan: LayoutPlan, words: Messages) -> Figure:
    """Make the figure of peak memory against seconds of an update: the fastest layout of every mesh
    that fits, and the Pareto front, with the memory limit as a line."""
    rows, meshes = plan.front_rows, plan.mesh_rows or plan.front_rows
    marks: list[Mark] = [
        LineMark(
            *_coordinates(plan, meshes),
            SeriesId(series="mesh"),
            joined=False,
            marker="circle",
            hints=[_hint(plan, row, words) for row in meshes],
        ),
        LineMark(
            *_coordinates(plan, rows),
            SeriesId(series="front"),
            marker="square",
            hints=[_hint(plan, row, words) for row in rows],
        ),
        ReferenceLine(plan.request.cluster.memory / GB, axis="x", dashed=True),
    ]
    keys = [
        LegendEntry("series", "mesh", words("planner.plans"), "steel", marker="circle"),
        LegendEntry("series", "front", words("planner.front"), "vermilion", marker="square"),
    ]
    x, y = (Axis(words(f"planner.axis.{key}"), "log") for key in ("memory", "seconds"))
    low, high = rows[0], rows[-1]
    alt = words(
        "planner.figure_alt",
        low=format_bytes(float(plan.peak_memory[low])),
        slow=format_seconds(float(plan.update_seconds[low])),
        high=format_bytes(float(plan.peak_memory[high])),
        fast=format_seconds(float(plan.update_seconds[high])),
    )
    panel = Panel(marks, x, y, height=300)
    return Figure("front", words("planner.figure"), alt, [panel], keys)


def _coordinates(plan: LayoutPlan, rows: list[int]) -> tuple[Any, Any]:
    """Return the coordinates of rows: memory in GB, and seconds."""
    return plan.peak_memory[rows] / GB, plan.update_seconds[rows]


def _hint(plan: LayoutPlan, row: int, words: Messages) -> str:
    """Return the tooltip of row ``row``: the layout, its peak bytes and the seconds of an
    update."""
    held, seconds = (
        format_bytes(float(plan.peak_memory[row])),
        format_seconds(float(plan.update_seconds[row])),
    )
    return f"{shown.describe_layout(plan, row, words)}: {held}, {seconds}"


def make_time_figure(plan: LayoutPlan, rows: list[int], words: Messages) -> Figure:
    """Make the bar chart of the parts of the time of an update, a bar for each of the layouts
    ``rows``, indices into ``plan.layouts``."""
    names = [plan.mesh(row) for row in rows]
    panel = Panel(
        list(_stacks(plan, rows)),
        Axis(words("planner.axis.seconds"), low=0.0),
        Axis(names=names, grid=False),
        height=26.0 * len(rows) + 10,
    )
    keys = [
        LegendEntry("series", key, words(f"planner.part.{key}"), color)
        for key, color in COLOURS.items()
    ]
    values = [
        f"{name}: {format_seconds(float(plan.update_seconds[row]))}"
        for name, row in zip(names, rows, strict=True)
    ]
    alt = words("planner.bars_alt", values=words.semicolons(values))
    return Figure("parts", words("planner.bars"), alt, [panel], keys)


def _stacks(plan: LayoutPlan, rows: list[int]) -> Iterator[Bar]:
    """Yield the stacked bars of each row."""
    for y, row in enumerate(rows):
        parts = plan.seconds.describe(row)
        ordered = {key: parts[key] for key in COLOURS}
        yield from stacked_bars(
            float(y), ordered, text=format_seconds(float(plan.update_seconds[row]))
        )
