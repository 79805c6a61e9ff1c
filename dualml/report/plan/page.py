"""A plan as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dualml.cost.units import told_bytes, told_seconds
from dualml.planner.published import halves, summary
from dualml.planner.search import Plan
from dualml.report.blocks import Block, Page, Prose, Section, Verdict
from dualml.report.figure import Axis, Bar, Figure, Key, Line, Mark, Owner, Panel, Rule
from dualml.report.plan import tables as shown
from dualml.report.shown import stacked
from dualml.version import __version__
from dualml.words import Words, numbers

#: Colours of the parts of an update, in the order of the bars.
COLOURS = {
    "products": "forward",
    "traffic": "steel",
    "recompute": "backward",
    "tensor": "plum",
    "pipeline": "lilac",
    "replicas": "amber",
    "update": "sage",
    "bubble": "silver",
}
GB = 1e9


def page(plan: Plan, top: int, words: Words) -> Page:
    """Make the page: the answer, the Pareto front, and the breakdown of time."""
    request = plan.request
    about = {"model": request.shape.name, "devices": f"{request.cluster.devices:,}",
             "device": request.device, "memory": told_bytes(request.cluster.memory)}  # fmt: skip
    answer, *reasons = shown.explained(plan, words)
    rows = plan.meshes[:top]
    median, worst = summary([p.error for p in halves().held_out])
    assumed = words("planner.assumed", median=numbers.percent(median), worst=numbers.percent(worst))
    first: list[Block] = [
        Verdict(answer, "good"),
        *map(Prose, reasons),
        front_figure(plan, words),
        *(Prose(text, small=True) for text in shown.title(plan, words)),
        Prose(assumed, small=True),
    ]
    tables: list[Block] = [
        shown.table("plans", plan, rows, words, shown.considered(plan, len(rows), words)),
        bars(plan, rows, words),
        shown.table("front", plan, shown.front(plan), words, words("planner.front")),
    ]
    return Page(
        lang=words.lang,
        title=words("planner.heading", **about),
        question=words("planner.question", **about),
        blocks=[
            Section("summary", "", first),
            Section("plans", words("planner.plans"), tables),
        ],
        footer=words("planner.footer", version=__version__),
    )


def front_figure(plan: Plan, words: Words) -> Figure:
    """Make the figure of memory against time."""
    rows, meshes = plan.front, plan.meshes
    marks: list[Mark] = [
        Line(*_places(plan, meshes), Owner(series="mesh"), joined=False, marker="circle",
             hints=[_hint(plan, row, words) for row in meshes]),
        Line(*_places(plan, rows), Owner(series="front"), marker="square",
             hints=[_hint(plan, row, words) for row in rows]),
        Rule(plan.request.cluster.memory / GB, axis="x", dashed=True),
    ]  # fmt: skip
    keys = [
        Key("series", "mesh", words("planner.plans"), "steel", marker="circle"),
        Key("series", "front", words("planner.front"), "vermilion", marker="square"),
    ]
    x, y = (Axis(words(f"planner.axis.{key}"), "log") for key in ("memory", "seconds"))
    low, high = rows[0], rows[-1]
    alt = words(
        "planner.figure_alt", low=told_bytes(float(plan.held[low])),
        slow=told_seconds(float(plan.total[low])), high=told_bytes(float(plan.held[high])),
        fast=told_seconds(float(plan.total[high])),
    )  # fmt: skip
    panel = Panel(marks, x, y, height=300)
    return Figure("front", words("planner.figure"), alt, [panel], keys)


def _places(plan: Plan, rows: list[int]) -> tuple[Any, Any]:
    """Return the coordinates of rows: memory in GB, and seconds."""
    return plan.held[rows] / GB, plan.total[rows]


def _hint(plan: Plan, row: int, words: Words) -> str:
    """Return the tooltip of a row."""
    held, seconds = told_bytes(float(plan.held[row])), told_seconds(float(plan.total[row]))
    return f"{shown.layout(plan, row, words)}: {held}, {seconds}"


def bars(plan: Plan, rows: list[int], words: Words) -> Figure:
    """Make the bar chart of the parts of the time of each layout."""
    names = [plan.mesh(row) for row in rows]
    panel = Panel(
        list(_stacks(plan, rows)), Axis(words("planner.axis.seconds"), low=0.0),
        Axis(names=names, grid=False), height=26.0 * len(rows) + 10,
    )  # fmt: skip
    keys = [Key("series", key, words(f"planner.part.{key}"), color)
            for key, color in COLOURS.items()]  # fmt: skip
    values = [f"{name}: {told_seconds(float(plan.total[row]))}"
              for name, row in zip(names, rows, strict=True)]  # fmt: skip
    alt = words("planner.bars_alt", values=words.semicolons(values))
    return Figure("parts", words("planner.bars"), alt, [panel], keys)


def _stacks(plan: Plan, rows: list[int]) -> Iterator[Bar]:
    """Yield the stacked bars of each row."""
    for y, row in enumerate(rows):
        parts = plan.seconds.describe(row)
        ordered = {key: parts[key] for key in COLOURS}
        yield from stacked(float(y), ordered, text=told_seconds(float(plan.total[row])))
