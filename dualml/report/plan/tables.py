"""A plan as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.planning.cost.units import format_bytes, format_seconds
from dualml.planning.planner.engine import MEGATRON
from dualml.planning.planner.request import ATTENTION
from dualml.planning.planner.search import LayoutPlan
from dualml.report.blocks import Table
from dualml.report.columns import Columns, highlight_best, make_table

#: Parts of the time or of the memory below this share are not reported.
MIN_REPORTED_SHARE = 0.005
#: Rows of the front that are shown: leanest, fastest, and evenly between them.
FRONT = 12


def request_lines(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield the sentences that state the request."""
    request, cluster = plan.request, plan.request.cluster
    shape = request.shape
    yield words(
        "planner.title",
        model=shape.name,
        parameters=format_count(shape.parameters),
        devices=f"{cluster.devices:,}",
        device=request.device,
        memory=format_bytes(cluster.memory),
        node=cluster.node,
        inside=format_rate(1 / cluster.inside.beta_s_per_byte),
        between=format_rate(1 / cluster.between.beta_s_per_byte),
    )
    yield words(
        "planner.batch",
        batch=f"{request.batch:,}",
        sequence=f"{shape.sequence:,}",
        tokens=format_count(request.batch * shape.sequence),
        precision=request.precision,
        attention=ATTENTION[request.fused],
    )
    if request.engine is not MEGATRON:
        yield words("planner.engine", engine=request.engine.name)
    if not request.batch_given:
        yield words("planner.chosen")


def format_count(n: float) -> str:
    """Format a number with three digits, ``175 B``, ``124 M``; in full below a million."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if n >= 0.9995 * size:
            return f"{numbers.factor(n / size)} {unit}"
    return f"{n:,.0f}"


def format_rate(bytes_per_s: float) -> str:
    """Format a bandwidth in bytes per second with a unit, e.g. ``600 GB/s``."""
    return f"{format_bytes(bytes_per_s)}/s"


def considered_sentence(plan: LayoutPlan, shown: int, words: Messages) -> str:
    """Return the sentence about how many layouts were considered, how many fit, and how many are
    shown."""
    return words(
        "planner.considered",
        n=f"{len(plan.layouts):,}",
        fits=f"{len(plan.ranked_rows):,}",
        meshes=f"{len(plan.meshes):,}",
        shown=shown,
    )


def layouts_table(
    name: str, plan: LayoutPlan, rows: list[int], words: Messages, caption: str = ""
) -> Table:
    """Return a table with a row per layout; a column ``limit`` marks layouts that do not fit, if
    there are any among ``rows``. Raise `UserError` if no layout of the plan fits."""
    x = plan.layouts
    axes = ("dp", "pp", "tp", *["cp"] * bool((x.cp > 1).any()), "zero", "micro")
    read: Columns[int] = {
        tuple(f"{axis}:" for axis in axes): lambda row: (str(x.describe(row)[a]) for a in axes),
        "recompute": lambda row: format_recompute(x.describe(row)),
        "held:": lambda row: format_bytes(float(plan.peak_memory[row])),
        "seconds:": lambda row: highlight_best(
            format_seconds(float(plan.update_seconds[row])), row == plan.best_row
        ),
        "share:": lambda row: numbers.percent(plan.utilisation(row)),
        "limit?": lambda row: "" if plan.fits[row] else words("planner.beyond"),
    }
    return make_table(words, name, rows, read, caption, "planner.column.{}")


def format_recompute(of: Mapping[str, Any]) -> str:
    """Format the recomputation of a layout: ``selective``, with ``sp`` for sequence parallelism and
    ``v2`` for interleaved stages."""
    more = [" sp"] if of["sp"] else []
    more += [f" v{of['chunks']}"] if of["chunks"] > 1 else []
    return "".join([of["recompute"], *more])


def describe_layout(plan: LayoutPlan, row: int, words: Messages) -> str:
    """Return a sentence with all choices of a layout."""
    of = plan.layouts.describe(row)
    return words(
        "planner.layout",
        mesh=plan.mesh(row),
        zero=of["zero"],
        micro=of["micro"],
        again=format_recompute(of),
    )


def sample_front(plan: LayoutPlan) -> list[int]:
    """Return about `FRONT` rows of the Pareto front, evenly spaced, always with its ends and the
    fastest layout that fits; all rows of a shorter front."""
    rows = plan.front
    if len(rows) <= FRONT:
        return rows
    step = (len(rows) - 1) / (FRONT - 1)
    kept = {round(k * step) for k in range(FRONT)}
    kept |= {k for k, row in enumerate(rows) if row == plan.best_row}
    return [rows[k] for k in sorted(kept)]


def explain_plan(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield the sentences that explain the fastest layout that fits: its time, its memory, and what
    limits it. Raise `UserError` if none fits."""
    row, request = plan.best_row, plan.request
    of, shape = plan.layouts.describe(row), plan.request.shape
    yield words(
        "planner.answer",
        layout=describe_layout(plan, row, words),
        seconds=format_seconds(float(plan.update_seconds[row])),
        teraflops=numbers.factor(plan.utilisation(row) * request.cluster.peak / 1e12),
        share=numbers.percent(plan.utilisation(row)),
    )
    held, total = plan.memory.describe(row), float(plan.peak_memory[row])
    parts = [
        f"{words(f'planner.part.{key}')} {format_bytes(size)}"
        for key, size in held.items()
        if size >= MIN_REPORTED_SHARE * total
    ]
    yield words(
        "planner.holds",
        held=format_bytes(total),
        limit=format_bytes(request.cluster.memory),
        parts=words.join(parts),
    )
    yield words("planner.takes", parts=words.join(time_shares(plan, row, words)))
    yield bottleneck_sentence(plan, words)
    most, short = -(-shape.layers // of["pp"]), -shape.layers % of["pp"]
    if short:
        yield words("planner.uneven", pp=of["pp"], layers=shape.layers, most=most, least=most - 1)
    if of["zero"] >= 2 and of["pp"] > 1:
        yield words("planner.pipelined", zero=of["zero"])


def time_shares(plan: LayoutPlan, row: int, words: Messages) -> list[str]:
    """Return the parts of a layout's time with their shares as texts, largest first, without those
    below `MIN_REPORTED_SHARE`."""
    total = float(plan.update_seconds[row])
    parts = sorted(plan.seconds.describe(row).items(), key=lambda item: -item[1])
    return [
        f"{words(f'planner.part.{key}')} {numbers.percent(part / total)}"
        for key, part in parts
        if part >= MIN_REPORTED_SHARE * total
    ]


def bottleneck_sentence(plan: LayoutPlan, words: Messages) -> str:
    """Return the sentence about what limits the fastest layout that fits: memory, a part of the
    time, or the device's own work."""
    name = plan.binding
    saved = plan.bounds[name] if name in plan.bounds else plan.time_share(name)
    values: dict[str, Any] = {"share": numbers.percent(saved)}
    if name == "memory":
        row = int(plan.update_seconds.argmin())
        values["layout"] = describe_layout(plan, row, words)
        values["seconds"] = format_seconds(float(plan.update_seconds[row]))
        values["bytes"] = format_bytes(float(plan.peak_memory[row]))
    return words(f"planner.bound.{name}", **values)
