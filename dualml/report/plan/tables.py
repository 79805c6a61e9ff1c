"""A plan as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.cost.units import told_bytes, told_seconds
from dualml.planner.engine import MEGATRON
from dualml.planner.request import ATTENTION
from dualml.planner.search import Plan
from dualml.report.blocks import Cell, Cells, Column, Table
from dualml.words import Words, numbers

#: Parts of the time or of the memory below this share are not reported.
LEAST = 0.005
#: Rows of the front that are shown: leanest, fastest, and evenly between them.
FRONT = 12


def title(plan: Plan, words: Words) -> Iterator[str]:
    """Yield the sentences that state the request."""
    request, cluster = plan.request, plan.request.cluster
    shape = request.shape
    yield words(
        "planner.title", model=shape.name, parameters=count(shape.parameters),
        devices=f"{cluster.devices:,}", device=request.device, memory=told_bytes(cluster.memory),
        node=cluster.node, inside=rate(1 / cluster.inside.beta_s_per_byte),
        between=rate(1 / cluster.between.beta_s_per_byte),
    )  # fmt: skip
    yield words(
        "planner.batch", batch=f"{request.batch:,}", sequence=f"{shape.sequence:,}",
        tokens=count(request.batch * shape.sequence), precision=request.precision,
        attention=ATTENTION[request.fused],
    )  # fmt: skip
    if request.engine is not MEGATRON:
        yield words("planner.engine", engine=request.engine.name)
    if not request.chosen:
        yield words("planner.chosen")


def count(n: float) -> str:
    """Format a number with three digits: ``175 B``, ``124 M``."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if n >= 0.9995 * size:
            return f"{numbers.factor(n / size)} {unit}"
    return f"{n:,.0f}"


def rate(bytes_per_s: float) -> str:
    """Format a bandwidth in bytes per second."""
    return f"{told_bytes(bytes_per_s)}/s"


def considered(plan: Plan, shown: int, words: Words) -> str:
    """Return the sentence about how many layouts were considered."""
    return words(
        "planner.considered", n=f"{len(plan.layouts):,}", fits=f"{len(plan.ranked):,}",
        meshes=f"{len(plan.meshes):,}", shown=shown,
    )  # fmt: skip


def table(name: str, plan: Plan, rows: list[int], words: Words, caption: str = "") -> Table:
    """Make a table with a row per layout; a column ``limit`` marks layouts that do not fit, if
    there are any."""
    x = plan.layouts
    axes = ["dp", "pp", "tp"] + (["cp"] if (x.cp > 1).any() else [])
    marked = not plan.fits[rows].all()
    keys = (*axes, "zero", "micro", "recompute", "held", "seconds", "share", *["limit"] * marked)
    texts = {"recompute", "limit"}
    columns = [
        Column(k, words(f"planner.column.{k}"), show="text" if k in texts else "number")
        for k in keys
    ]
    best = plan.best
    cells: list[Cells] = []
    for row in rows:
        of = x.describe(row)
        line: Cells = [str(of[axis]) for axis in axes]
        line += [str(of["zero"]), str(of["micro"]), again(of), told_bytes(float(plan.held[row]))]
        tone = "good" if row == best else ""
        line += [Cell(told_seconds(float(plan.total[row])), tone)]  # type: ignore[arg-type]
        line += [numbers.percent(plan.utilisation(row))]
        line += ["" if plan.fits[row] else words("planner.beyond")] * marked
        cells.append(line)
    return Table(name, caption, columns, cells)


def again(of: Mapping[str, Any]) -> str:
    """Format the recomputation of a layout: ``selective``, with ``sp`` for sequence parallelism and
    ``v2`` for interleaved stages."""
    more = [" sp"] if of["sp"] else []
    more += [f" v{of['chunks']}"] if of["chunks"] > 1 else []
    return "".join([of["recompute"], *more])


def layout(plan: Plan, row: int, words: Words) -> str:
    """Return a sentence with all choices of a layout."""
    of = plan.layouts.describe(row)
    return words(
        "planner.layout", mesh=plan.mesh(row), zero=of["zero"], micro=of["micro"], again=again(of)
    )


def front(plan: Plan) -> list[int]:
    """Return at most ``FRONT`` rows of the Pareto front, including its ends and the winner."""
    rows = plan.front
    if len(rows) <= FRONT:
        return rows
    step = (len(rows) - 1) / (FRONT - 1)
    kept = {round(k * step) for k in range(FRONT)}
    kept |= {k for k, row in enumerate(rows) if row == plan.best}
    return [rows[k] for k in sorted(kept)]


def explained(plan: Plan, words: Words) -> Iterator[str]:
    """Yield the sentences that explain the winner: its time, its memory, and what limits it."""
    row, request = plan.best, plan.request
    of, shape = plan.layouts.describe(row), plan.request.shape
    yield words(
        "planner.answer", layout=layout(plan, row, words),
        seconds=told_seconds(float(plan.total[row])),
        teraflops=numbers.factor(plan.utilisation(row) * request.cluster.peak / 1e12),
        share=numbers.percent(plan.utilisation(row)),
    )  # fmt: skip
    held, total = plan.memory.describe(row), float(plan.held[row])
    parts = [f"{words(f'planner.part.{key}')} {told_bytes(size)}"
             for key, size in held.items() if size >= LEAST * total]  # fmt: skip
    yield words(
        "planner.holds", held=told_bytes(total), limit=told_bytes(request.cluster.memory),
        parts=words.join(parts),
    )  # fmt: skip
    yield words("planner.takes", parts=words.join(shares(plan, row, words)))
    yield bound(plan, words)
    most, short = -(-shape.layers // of["pp"]), -shape.layers % of["pp"]
    if short:
        yield words("planner.uneven", pp=of["pp"], layers=shape.layers, most=most, least=most - 1)
    if of["zero"] >= 2 and of["pp"] > 1:
        yield words("planner.pipelined", zero=of["zero"])


def shares(plan: Plan, row: int, words: Words) -> list[str]:
    """Return the parts of the time with their shares, largest first."""
    total = float(plan.total[row])
    parts = sorted(plan.seconds.describe(row).items(), key=lambda item: -item[1])
    return [f"{words(f'planner.part.{key}')} {numbers.percent(part / total)}"
            for key, part in parts if part >= LEAST * total]  # fmt: skip


def bound(plan: Plan, words: Words) -> str:
    """Return the sentence about what limits the winner."""
    name = plan.binding
    saved = plan.bounds[name] if name in plan.bounds else plan.share(name)
    values: dict[str, Any] = {"share": numbers.percent(saved)}
    if name == "memory":
        row = int(plan.total.argmin())
        values["layout"] = layout(plan, row, words)
        values["seconds"] = told_seconds(float(plan.total[row]))
        values["bytes"] = told_bytes(float(plan.held[row]))
    return words(f"planner.bound.{name}", **values)
