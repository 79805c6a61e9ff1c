"""Judge the planner by published training runs.

    python benchmarks/planner/run.py [--json FILE] [--markdown FILE] [--rows] [--source NAME]
        [--calculon FOLDER] [--llm-analysis PYTHON] [--no-ranks]

Prices every published row with its layout and prints the errors by family, device and source, worst
first, of the sources to which nothing was fitted, and apart from them of those to which constants
may be fitted. ``--rows`` prints every row. ``--calculon`` and ``--llm-analysis`` price the rows
that those tools can express, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planner.others import TOOLS, price_with
from planner.price import Price, price_row
from planner.rank import Rank, rank_row
from planner.rows import PublishedRow, all_rows, is_fitted
from planner.summary import Judged, summarise
from planner.tables import markdown, row_lines


def judge(row: PublishedRow, price: Price) -> Judged:
    """Put a row beside its price."""
    return Judged(
        row.name,
        row.source,
        row.family,
        row.device,
        row.model,
        row.layout,
        row.seconds,
        0.0 if price.reason else price.seconds,
        row.memory,
        0.0 if price.reason else price.memory,
        price.needed,
        price.limit,
        row.oom,
        float(row.batch * row.sequence),
        row.sweep,
        is_fitted(row.source),
        price.reason,
    )


def rank_chosen(rows: Sequence[PublishedRow]) -> dict[str, dict[str, Any]]:
    """Return name of each half → chosen layouts: how many the planner finds, and each one's
    place."""
    found: dict[str, dict[str, Any]] = {}
    for half, fitted in (("held_out", False), ("fitted", True)):
        ranked: list[tuple[PublishedRow, Rank]] = []
        for row in rows:
            if row.chosen and is_fitted(row.source) == fitted and (rank := rank_row(row)):
                ranked.append((row, rank))
        found[half] = {
            "layouts": len(ranked),
            "found": sum(rank.is_proposed for _, rank in ranked),
            "rows": {
                row.name: {
                    "model": row.model,
                    "devices": row.devices,
                    "layout": row.layout,
                    "place": rank.place,
                    "meshes": rank.meshes,
                    "slower": round(rank.slower, 4),
                    "fastest": rank.fastest,
                }
                for row, rank in ranked
            },
        }
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Price, summarise, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--source", action="append", metavar="NAME")
    parser.add_argument("--no-ranks", action="store_true")
    for tool in TOOLS.values():
        parser.add_argument(f"--{tool.name}", metavar=tool.argument, help=tool.help)
    options = parser.parse_args(arguments)
    rows = [row for row in all_rows() if not options.source or row.source in options.source]
    began = time.perf_counter()
    judged = [judge(row, price_row(row)) for row in rows]
    result = summarise(judged)
    result["seconds"] = round(time.perf_counter() - began, 1)
    result["count"] = {
        "sources": len({row.source for row in rows}),
        "timings": sum(bool(row.seconds) for row in rows),
        "memories": sum(bool(row.memory) for row in rows),
        "out_of_memory": sum(row.oom for row in rows),
    }
    if not options.no_ranks:
        result["chosen"] = rank_chosen(rows)
    result["tools"] = {}
    for tool in TOOLS.values():
        where = getattr(options, tool.name.replace("-", "_"))
        result["tools"][tool.name] = price_with(tool, where, rows, judged)
    if options.rows:
        print("\n".join(row_lines(judged)))
    text = markdown(result)
    print(text)
    if options.markdown:
        options.markdown.write_text(text, "utf-8")
    if options.json:
        result["rows"] = [_short(row) for row in judged]
        options.json.write_text(_dump(result), "utf-8")


def _short(row: Judged) -> dict[str, Any]:
    """Return a row's numbers for the JSON file."""
    values: dict[str, Any] = {"name": row.name, "family": row.family, "device": row.device}
    if row.error is not None:
        values |= {"measured": round(row.measured, 4), "error": round(row.error, 4)}
    if row.memory_error is not None:
        values |= {"memory": round(row.memory), "memory_error": round(row.memory_error, 4)}
    if row.oom:
        values["oom"] = row.needed > row.limit
    if row.reason:
        values["reason"] = row.reason
    return values


def _dump(result: dict[str, Any]) -> str:
    """Return JSON with one line for each row."""
    rows = result.pop("rows")
    head = json.dumps(result, indent=1, ensure_ascii=False)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n'


if __name__ == "__main__":
    main()
