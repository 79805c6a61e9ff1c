"""Published training runs beside the predictions of the planner, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages, numbers
from dualml.parallel.memory import sharding_ranks
from dualml.planning.planner.devices import fitted_efficiency
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.memory import PRECISIONS, layer_activations
from dualml.planning.planner.models import find_model
from dualml.planning.planner.plan_request import PlanRequest
from dualml.planning.planner.published import (
    PAPERS,
    TOLERANCE,
    PublishedRun,
    RunPrediction,
    fitted_names,
    median_and_max,
    predictions_by_group,
    runs,
)
from dualml.planning.planner.published import tables as given
from dualml.planning.planner.search import search_layouts
from dualml.planning.planner.space import SearchSpace
from dualml.report.blocks import Table
from dualml.report.columns import Columns, make_table

R = TypeVar("R")
STAGES = ("plain", "zero_1", "zero_2", "zero_3")


def tables(words: Messages) -> Iterator[Table]:
    """Yield all tables that compare published runs with the planner: errors, runs, choices of
    meshes, states, largest models, activations."""
    yield errors_table(words)
    yield runs_table(words)
    yield choices_table(words)
    yield states_table(words)
    yield largest_models_table(words)
    yield activations_table(words)


def _table(name: str, records: Iterable[R], read: Columns[R], words: Messages) -> Table:
    """Return a table with a row per record and the caption ``planner.table.NAME``."""
    caption = words(f"planner.table.{name}")
    return make_table(words, name, records, read, caption, "planner.column.{}")


def errors_table(words: Messages) -> Table:
    """Return the table of median and worst errors of the time, a row each for the runs that
    calibrate their software, the held-out ones on the same device, and those on other devices."""
    read: Columns[tuple[str, Sequence[RunPrediction]]] = {
        "half": lambda half: words(f"planner.half.{half[0]}"),
        "count:": lambda half: str(len(half[1])),
        ("median:", "worst:"): lambda half: map(
            numbers.percent, median_and_max([p.error for p in half[1]])
        ),
    }
    return _table("errors", vars(predictions_by_group()).items(), read, words)


def runs_table(words: Messages) -> Table:
    """Return the table of all published runs: layout, and teraFLOP/s per device."""
    read: Columns[RunPrediction] = {
        "run": lambda p: f"{p.run.name} {p.run.model}",
        "devices_of:": lambda p: f"{p.run.devices:,}",
        "layout": format_run_layout,
        "fitted": lambda p: "•" if p.run.name in fitted_names() else "",
        ("measured:", "predicted:"): lambda p: (f"{flops:.0f}" for flops in p.teraflops),
        "error:": lambda p: format_signed_percent(p.teraflops[1] / p.teraflops[0] - 1),
    }
    return _table("runs", [run.predict() for run in runs()], read, words)


def format_run_layout(p: RunPrediction) -> str:
    """Format a run's layout as ``tp 8 · pp 12, selective sp``; unpublished parts are in
    brackets."""
    of = p.run.layouts.describe(p.row)
    axes = [f"tp {of['tp']}", f"pp {of['pp']}"] + ([f"cp {of['cp']}"] if of["cp"] > 1 else [])
    more = [f"ZeRO-{of['zero']}"] if of["zero"] else []
    more += [of["recompute"] + (" sp" if of["sp"] else "")]
    several = len(p.run.layouts) > 1
    more += [f"(b {of['micro']}, v {of['chunks']})" if several else f"b {of['micro']}"]
    more += [f"v {of['chunks']}"] if of["chunks"] > 1 and not several else []
    return f"{' · '.join(axes)}, {', '.join(more)}"


def format_signed_percent(share: float) -> str:
    """Format a share as a signed percentage with one decimal."""
    return f"{100 * share:+.1f} %".replace("-", "−")


@cache
def layout_choices() -> tuple[tuple[PublishedRun, str, str, float], ...]:
    """Return (run, mesh used, mesh found, saving) for the runs whose authors chose the layout: the
    planner searches the best mesh for each, on the first call only; the saving is 1 − its predicted
    time / that of the mesh used."""
    rows = []
    for run in runs():
        if run.table not in ("narayanan-1", "llama3-4"):
            continue
        of = run.layouts.describe(0)
        had = SearchSpace(
            context=16 if run.table == "llama3-4" else 1,
            chunks=int(run.layouts.chunks.max()),
            zero=(of["zero"],),
            recompute=(of["recompute"],),
            sequence=(int(of["sp"]),),
        )
        # As for the prediction of the run, what just does not fit may have been used.
        cluster = run.make_cluster_for(fitted_efficiency())
        request = PlanRequest(
            run.shape,
            replace(cluster, memory=TOLERANCE * cluster.memory),
            "mixed",
            of["batch"],
            True,
            run.fused,
            run.device.name,
            had,
            PAPERS,
        )
        answer = search_layouts(request)
        best = answer.layouts.describe(answer.best_row)
        saved = 1 - float(answer.update_seconds[answer.best_row]) / run.predict().seconds
        rows.append((run, _mesh(of), _mesh(best), saved))
    return tuple(rows)


def _mesh(of: dict[str, Any]) -> str:
    """Format the mesh of a layout as ``dp 8 · pp 4 · tp 8``."""
    return " · ".join(
        f"{axis} {of[axis]}" for axis in ("dp", "pp", "tp", "cp") if axis != "cp" or of["cp"] > 1
    )


def choices_table(words: Messages) -> Table:
    """Return the table of the meshes that authors used and that the planner finds, with the share
    of the time that the found one saves (`layout_choices`)."""
    read: Columns[tuple[PublishedRun, str, str, float]] = {
        ("run", "devices_of:"): lambda row: (
            f"{row[0].name} {row[0].model}",
            f"{row[0].devices:,}",
        ),
        ("used", "best"): lambda row: row[1:3],
        "gain:": lambda row: format_signed_percent(row[3]),
    }
    return _table("choices", layout_choices(), read, words)


def states_table(words: Messages) -> Table:
    """Return ZeRO's table 1: GB of weights, gradients and optimizer state per device, published /
    predicted."""

    def cells(row: Sequence[float]) -> Iterator[str]:
        parameters, n, *published = row
        for zero, gb in enumerate(published, start=1):
            ranks = sharding_ranks(zero, int(n))
            predicted = float(PRECISIONS["mixed"].on_rank(parameters, ranks).total) / 1e9
            yield f"{gb:g} / {format_digits(predicted)}"

    read: Columns[Sequence[float]] = {
        ("parameters:", "devices_of:"): lambda row: (f"{row[0] / 1e9:g} B", f"{row[1]:,}"),
        ("zero_1:", "zero_2:", "zero_3:"): cells,
    }
    return _table("states", given()["zero-1"]["rows"], read, words)


def format_digits(x: float) -> str:
    """Format a positive number with four significant digits, or all digits before the decimal
    point."""
    return f"{x:.4g}" if x < 1e4 else f"{x:.0f}"


def most_parameters(memory: float, model_parallel: int, zero: int, replicas: int) -> float:
    """Return the number of parameters Ψ whose weights, gradients and optimizer state in mixed
    precision fill devices of ``memory`` bytes, if ``model_parallel`` devices share the model and
    ``replicas`` of it shard as ZeRO stage ``zero`` (0 … 3)."""
    each = PRECISIONS["mixed"].on_rank(1.0, sharding_ranks(zero, replicas)).total
    return memory * model_parallel / float(each)


def largest_models_table(words: Messages) -> Table:
    """Return ZeRO's table 2: billions of parameters of the largest model that fits, published /
    predicted."""
    table = given()["zero-2"]

    def cells(row: Sequence[float]) -> Iterator[str]:
        mp, n, *published = row
        for zero, value in enumerate(published[:4]):
            most = most_parameters(table["memory"], int(mp), zero, int(n // mp))
            yield f"{value:g} / {format_digits(most / 1e9)}"

    read: Columns[Sequence[float]] = {
        ("tp:", "devices_of:"): lambda row: (str(row[0]), f"{row[1]:,}"),
        tuple(f"{stage}:" for stage in STAGES): cells,
        "really:": lambda row: " / ".join(f"{value:g}" for value in row[6:]),
    }
    return _table("largest", table["rows"], read, words)


def technique_activations(name: str, tp: int) -> tuple[float, float]:
    """Return two ratios for GPT-3 (175 B): the bytes that a layer keeps on a device for the
    backward pass with a technique such as ``tp+sp``, divided by sbh, and 5as/h (s sequence length,
    b micro-batch, h hidden size, a heads). The ``tp`` devices share it only if the technique
    includes ``tp``."""
    shape = find_model("gpt3-175b")
    again = next((word for word in RECOMPUTED if word in name.split("+")), "none")
    t = tp if "tp" in name else 1
    x = Layouts.from_axes(1, tp=t, sp="sp" in name.split("+"), recompute=again)
    _, kept = layer_activations(shape, x, PRECISIONS["mixed"])
    return (
        float(kept[0]) / (shape.sequence * shape.hidden),
        5 * shape.heads * shape.sequence / shape.hidden,
    )


def activations_table(words: Messages) -> Table:
    """Return Korthikanti's table 2, for GPT-3 on 8 devices: bytes of a layer's activations divided
    by sbh, published and predicted."""

    def cells(row: tuple[str, float, float, float]) -> tuple[str, str]:
        name, whole, split, scores = row
        predicted, ratio = technique_activations(name, tp=8)
        t = 8 if "tp" in name else 1
        published = whole + split / t + scores / 5 * ratio / t
        return f"{published:.4g}", f"{predicted:.4g}"

    read: Columns[Any] = {"technique": itemgetter(0), ("measured:", "predicted:"): cells}
    return _table("activations", given()["korthikanti-2"]["rows"], read, words)


def describe() -> JsonObject:
    """Return as JSON-compatible values ``runs``, all published runs with their predictions,
    ``errors``, median and worst relative error of each group of `predictions_by_group`, and
    ``reached``, the fitted efficiency."""
    rows = [
        {
            "run": run.name,
            "model": run.model,
            "devices": run.devices,
            "source": given()[run.table]["source"],
            "fitted": run.name in fitted_names(),
            "measured_s": run.measured,
            "predicted_s": p.seconds,
            "error": p.error,
            "memory_bytes": p.memory,
            "layout": run.layouts.describe(p.row),
        }
        for run in runs()
        for p in (run.predict(),)
    ]
    errors = {
        key: dict(zip(("median", "worst"), median_and_max([p.error for p in each]), strict=True))
        for key, each in vars(predictions_by_group()).items()
    }
    return {"reached": vars(fitted_efficiency()), "runs": rows, "errors": errors}
