"""Other tools on the same rows: Calculon and llm-analysis, each in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualml.planning.planner.devices import find_device
from planner.price import make_shape
from planner.rows import PublishedRow
from planner.setting import make_setting
from planner.summary import Judged, relative_error

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Tool:
    """Another tool.

    Attributes:
        name: as on the command line.
        argument: what its option names.
        help: of its option.
        script: file beside this one that prices rows from standard input with the tool.
    """

    name: str
    argument: str
    help: str
    script: str


TOOLS = {
    "calculon": Tool(
        "calculon", "FOLDER", "a checkout of calculon-ai/calculon", "calculon_prices.py"
    ),
    "llm-analysis": Tool(
        "llm-analysis", "PYTHON", "a Python that has llm-analysis", "llm_analysis_prices.py"
    ),
}


def price_with(
    tool: Tool, where: str | None, rows: Sequence[PublishedRow], judged: Sequence[Judged]
) -> dict[str, Any]:
    """Return the tool's median errors beside the planner's, by half and family, over the rows that
    both price; a sentence instead if the tool is not installed."""
    if where is None:
        return {"skipped": f"{tool.name} is left out: --{tool.name} names {tool.help}."}
    cases = [describe_case(row) for row in rows]
    asked = [i for i, case in enumerate(cases) if case is not None]
    command = [where if tool.argument == "PYTHON" else sys.executable, str(FOLDER / tool.script)]
    command += [] if tool.argument == "PYTHON" else [where]
    done = subprocess.run(
        command,
        input=json.dumps([cases[i] for i in asked]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"skipped": f"{tool.name} is left out, as it ended with: {last}"}
    prices = dict(zip(asked, json.loads(done.stdout), strict=True))
    return compare_tool(prices, judged)


def compare_tool(prices: dict[int, dict[str, Any]], judged: Sequence[Judged]) -> dict[str, Any]:
    """Return half → family → number of rows that both price, and the median absolute errors of the
    tool and of the planner for time and memory; ``prices`` has index → seconds and memory."""
    result: dict[str, Any] = {"held_out": {}, "fitted": {}}
    for half, fitted in (("held_out", False), ("fitted", True)):
        groups: dict[str, list[tuple[Judged, dict[str, Any]]]] = {}
        for i, price in prices.items():
            row = judged[i]
            if row.fitted == fitted and price.get("seconds") and row.error is not None:
                for family in ("all", row.family):
                    groups.setdefault(family, []).append((row, price))
        for family, pairs in groups.items():
            tool_errors = [relative_error(price["seconds"], row.measured) for row, price in pairs]
            result[half][family] = {
                "rows": len(pairs),
                "tool": _median(tool_errors),
                "planner": _median([row.error for row, _ in pairs]),
                "tool_memory": _median(
                    [relative_error(price.get("memory", 0.0), row.memory) for row, price in pairs]
                ),
                "planner_memory": _median(
                    [row.memory_error if price.get("memory") else None for row, price in pairs]
                ),
            }
    return result


def describe_case(row: PublishedRow) -> dict[str, Any] | None:
    """Return what a tool has to know of a row, as plain values; None for devices that the planner
    does not know and rows without a time."""
    if not row.seconds:
        return None
    try:
        cluster = make_setting(row).cluster
        device = find_device(row.device)
        shape = make_shape(row)
    except Exception:  # what the planner cannot express is not compared
        return None
    return {
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "width": shape.width,
        "ffn": shape.ffn,
        "gated": shape.gated,
        "vocabulary": shape.vocabulary,
        "sequence": shape.sequence,
        "devices": row.devices,
        "batch": row.batch,
        **{key: getattr(row, key) for key in ("dp", "pp", "tp", "cp", "ep", "zero", "replicate")},
        **{key: getattr(row, key) for key in ("micro", "chunks", "sp", "recompute", "overlap")},
        "flash": row.attention != "stored",
        "precision": row.precision,
        "device": row.device,
        "peak": device.peaks["mixed"],
        "memory": cluster.memory,
        "bandwidth": cluster.bandwidth,
        "inside": row.inside or device.inside,
        "between": 1 / cluster.between.beta_s_per_byte,
        "node": cluster.node,
    }


def _median(errors: Sequence[float | None]) -> float | None:
    """Return the median of the absolute errors, None without any."""
    found = [abs(error) for error in errors if error is not None]
    return round(float(np.median(found)), 4) if found else None
