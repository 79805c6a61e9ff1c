"""A plan as tables, and the sentences that state its request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.planning.cost.units import format_bytes, format_seconds
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layout_plan import LayoutPlan
from dualml.planning.planner.plan_request import ATTENTION
from dualml.report.blocks import Table
from dualml.report.columns import Columns, highlight_best, make_table

#: Rows of the front that are shown: leanest, fastest, and evenly between them.
FRONT = 12


def request_lines(plan: LayoutPlan, words: Messages) -> Iterator[str]:
    """Yield the sentences that state the request: model and cluster, batch and precision,
    assumptions, and for some requests the engine and that the batch was chosen."""
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
    yield assumptions_sentence(plan, words)
    if request.engine is DUALML:
        yield words("planner.engine", engine=request.engine.name)
    if not request.batch_given:
        yield words("planner.chosen")


def assumptions_sentence(plan: LayoutPlan, words: Messages) -> str:
    """Return the sentence with every default that matters for the answer, and the options that
    change it."""
    assumed = plan.request.describe_assumptions()
    return words(
        "planner.defaults",
        engine=plan.request.engine.name,
        attention=assumed["attention"],
        overlap=numbers.whole(100 * assumed["overlap"]),
        interleave=assumed["interleave"],
        efficiency=numbers.percent(assumed["efficiency"]),
        reserve=format_bytes(assumed["reserve"]),
    )


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
    """Return the sentence about how many layouts were considered, how many fit, how many meshes
    these have, and how many layouts are shown (``shown``)."""
    return words(
        "planner.considered",
        n=f"{len(plan.layouts):,}",
        fits=f"{len(plan.ranked_rows):,}",
        meshes=f"{len(plan.mesh_rows):,}",
        shown=shown,
    )


def layouts_table(
    name: str, plan: LayoutPlan, rows: list[int], words: Messages, caption: str = ""
) -> Table:
    """Return a table with a row per layout of ``rows``, indices into ``plan.layouts``; a column
    ``limit`` marks layouts that do not fit, if there are any among them. Raise `UserError` if no
    layout of the plan fits and its request names none."""
    x = plan.layouts
    more = [axis for axis in ("cp", "ep") if (getattr(x, axis) > 1).any()]
    axes = ("dp", "pp", "tp", *more, "zero", "micro")
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
    """Return a text with the choices of a layout: mesh, ZeRO stage, micro-batch and
    recomputation."""
    of = plan.layouts.describe(row)
    return words(
        "planner.layout",
        mesh=plan.mesh(row),
        zero=of["zero"],
        micro=of["micro"],
        again=format_recompute(of),
    )


def sample_front(plan: LayoutPlan) -> list[int]:
    """Return about `FRONT` rows (indices into ``plan.layouts``) of the Pareto front, evenly spaced,
    always with its ends and the fastest layout that fits; all rows of a shorter front."""
    rows = plan.front_rows
    if len(rows) <= FRONT:
        return rows
    step = (len(rows) - 1) / (FRONT - 1)
    kept = {round(k * step) for k in range(FRONT)}
    kept |= {k for k, row in enumerate(rows) if row == plan.best_row}
    return [rows[k] for k in sorted(kept)]
