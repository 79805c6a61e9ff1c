"""The benchmark's tables in Markdown, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.summary import Judged

HALVES = {
    "held_out": "Held out: sources to which no constant was fitted",
    "fitted": "Sources to which constants may be fitted",
}
GROUPS = {"by_family": "family", "by_device": "device", "by_source": "source"}
COLUMNS = ("timings", "median", "90 %", "worst", "bias")


def markdown(result: Mapping[str, Any]) -> str:
    """Return the tables of a result of `run`: held-out sources first."""
    count = result["count"]
    lines = [
        f"{count['timings']} timings, {count['memories']} memories and {count['out_of_memory']} "
        f"out-of-memories of {count['sources']} sources.",
    ]
    for half, title in HALVES.items():
        lines += ["", f"## {title}", *_half_lines(result[half])]
        if half in result.get("chosen", {}):
            lines += _chosen_lines(result["chosen"][half])
        for name, tool in result["tools"].items():
            lines += _tool_lines(name, tool, half)
    return "\n".join(lines) + "\n"


def row_lines(rows: Iterable[Judged]) -> list[str]:
    """Return a line for each row, the largest error first."""
    ordered = sorted(rows, key=lambda row: -abs(row.error or 0.0))
    lines = []
    for row in ordered:
        error = "" if row.error is None else f"{row.error:+.1%}"
        memory = "" if row.memory_error is None else f"memory {row.memory_error:+.1%}"
        oom = row.oom and ("out of memory" if row.needed > row.limit else "FITS")
        parts = (row.name, row.model, row.device, row.layout, error, memory, oom or "", row.reason)
        lines.append("  ".join(part for part in parts if part))
    return lines


def _half_lines(half: Mapping[str, Any]) -> list[str]:
    """Return the tables of one half."""
    lines = []
    for key, name in GROUPS.items():
        groups = {"all": half["all"], **half[key]} if key == "by_family" else half[key]
        lines += ["", *_table(name, groups)]
    if half["sources"]:
        medians = (f"{kind} {value:.1%}" for kind, value in half["sources"].items())
        lines += ["", f"Median over sources of their median errors: {', '.join(medians)}."]
    if half["sweeps"]:
        lines += ["", "| sweep | layouts | Spearman | first is slower by |", "|---|---:|---:|---:|"]
        for name, sweep in half["sweeps"].items():
            loss = f"{sweep['loss_of_first']:.1%}"
            lines.append(f"| {name} | {sweep['layouts']} | {sweep['spearman']:.2f} | {loss} |")
    if half["unpriced"]:
        lines += ["", "Without a price:"]
        lines += [f"- {number} × {reason}" for reason, number in half["unpriced"].items()]
    return lines


def _table(name: str, groups: Mapping[str, Any]) -> list[str]:
    """Return a table with a line for each group: errors of times and memories, and
    out-of-memories."""
    head = (name, *COLUMNS, "memories", "median", "90 %", "worst", "OOM called fitting")
    head += ("ran, called OOM", "no price")
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for group, values in groups.items():
        oom = f"{values['called_fitting']} of {values['out_of_memory']}"
        ran = f"{values['called_out_of_memory']} of {values['ran']}"
        cells = [group, *_statistics(values["time"], bias=True), *_statistics(values["memory"])]
        cells += [oom if values["out_of_memory"] else "", ran, str(values["unpriced"] or "")]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _statistics(values: Mapping[str, float] | None, bias: bool = False) -> list[str]:
    """Return number, median, 90th percentile and worst as texts, and the bias if asked for."""
    if values is None:
        return [""] * (5 if bias else 4)
    texts = [str(values["rows"]), f"{values['median']:.1%}", f"{values['p90']:.1%}"]
    texts.append(f"{values['worst']:+.1%}")
    return [*texts, f"{values['bias']:+.1%}"] if bias else texts


def _chosen_lines(chosen: Mapping[str, Any]) -> list[str]:
    """Return what the planner would have said of the layouts that authors chose."""
    if not chosen["layouts"]:
        return []
    lines = [
        "",
        f"Of {chosen['layouts']} layouts that their authors chose {chosen['found']} are among the "
        "planner's first three meshes or within 3 % of its fastest.",
        "",
        "| row | model | devices | layout | place | slower | the planner's |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    ordered: Sequence[tuple[str, Any]] = sorted(
        chosen["rows"].items(), key=lambda item: -item[1]["slower"]
    )
    for name, row in ordered:
        place = f"{row['place']} of {row['meshes']}"
        cells = (name, row["model"], f"{row['devices']:,}", row["layout"], place)
        lines.append("| " + " | ".join((*cells, f"{row['slower']:+.1%}", row["fastest"])) + " |")
    return lines


def _tool_lines(name: str, tool: Mapping[str, Any], half: str) -> list[str]:
    """Return another tool's errors beside the planner's on the rows that both price."""
    if "skipped" in tool:
        return ["", tool["skipped"]]
    compared = tool[half]
    if not compared:
        return ["", f"{name} prices no row of this half."]
    lines = ["", f"| {name}, by family | timings | its median | the planner's | its memory |"]
    lines[-1] += " the planner's |"
    lines.append("|---|---:|---:|---:|---:|---:|")
    for family, values in compared.items():
        cells = [family, str(values["rows"])]
        for key in ("tool", "planner", "tool_memory", "planner_memory"):
            cells.append("" if values[key] is None else f"{values[key]:.1%}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines
