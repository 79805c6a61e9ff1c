"""Two more tables of docs/benchmarks: what the communicators can do, and the cost model's errors.

    dualml capabilities --json > capabilities.json
    python benchmarks/pages.py --capabilities capabilities.json --costs RUN/cost.json

Each goes between its marks on both pages; without its file, a table stays as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
PAGES = [
    Path(__file__).parents[1] / "docs" / f"benchmarks-communication{end}.md" for end in ("", ".zh")
]
#: Sizes and strategies with rows of their own; the summary counts all.
SIZES = (2**10, 2**20, 2**24, 2**26)
STRATEGIES = ("all_reduce", "ring", "tree", "parameter_server")
WORDS = {
    "en": {
        "native": "native",
        "composed": "composed",
        "unsupported": "unsupported",
        "failed": "failed",
        "primitive": "primitive",
        "head": [
            "backend",
            "n",
            "strategy",
            "bytes",
            "measured",
            "predicted",
            "ratio",
        ],
        "median": "{backend}, n = {n}, predicted from n = {least}: measured / predicted "
        "{median:.2f} (median of {count} measurements; {low:.2f} to {high:.2f} in the middle "
        "half).",
        "colon": ": ",
    },
    "zh": {
        "native": "原生",
        "composed": "组合",
        "unsupported": "不支持",
        "failed": "失败",
        "primitive": "原语",
        "head": ["后端", "n", "策略", "字节", "实测", "预测", "比值"],
        "median": "{backend}，n = {n}：由 n = {least} 预测；{count} 次测量的实测 / 预测，中位数 "
        "{median:.2f}，中间一半为 {low:.2f} 至 {high:.2f}。",
        "colon": "：",
    },
}


def table(head: Sequence[str], align: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, align, *rows)) + "\n"


def capabilities(told: Record, lang: str) -> str:
    """Return the table of capabilities: a row for each primitive, a column for each backend and
    device."""
    words, columns = WORDS[lang], told["columns"]
    names = [n for c in columns for n in c.get("primitives") or {}]
    rows = [
        [f"`{name}`", *(capability(column, name, words) for column in columns)]
        for name in dict.fromkeys(names)
    ]
    head = [words["primitive"], *(f"{c['backend']} ({c['device']})" for c in columns)]
    return table(head, ["---"] * len(head), rows)


def capability(column: Record, primitive: str, words: Record) -> str:
    """Return the text of a capability: its kind, its composition, and dtypes for which it
    differs."""
    found = (column.get("primitives") or {}).get(primitive)
    if found is None:
        return f"{words['unsupported']}{words['colon']}{column['reason']}"
    parts = [f"{words[found['kind']]}{words['colon']}{found['detail']}"]
    parts += [
        f"{words[kind]}{words['colon']}{', '.join(types)}"
        for kind, types in found["differing"].items()
    ]
    return "; ".join(parts).replace("|", "\\|")


def predictions(told: Record, lang: str) -> str:
    """Return a line for each backend and number of ranks over all measurements, then selected
    ones."""
    words = WORDS[lang]
    groups: dict[tuple[str, int], list[Record]] = {}
    for check in told["checks"]:
        groups.setdefault((check["backend"], check["world_size"]), []).append(check)
    lines = []
    for (backend, n), checks in groups.items():
        shares = [c["measured_s"] / c["predicted_s"] for c in checks]
        low, median, high = quartiles(shares)
        least = checks[0]["from_world_size"]
        facts = {"backend": backend, "n": n, "least": least, "count": len(shares)}
        lines.append("- " + words["median"].format(**facts, low=low, median=median, high=high))
    chosen = [c for c in told["checks"] if c["bytes"] in SIZES and c["strategy"] in STRATEGIES]
    chosen.sort(key=lambda c: (c["backend"], c["world_size"], STRATEGIES.index(c["strategy"])))
    rows = [
        [
            c["backend"],
            str(c["world_size"]),
            f"`{c['strategy']}`",
            size(c["bytes"]),
            milliseconds(c["measured_s"]),
            milliseconds(c["predicted_s"]),
            f"{c['measured_s'] / c['predicted_s']:.2f}",
        ]
        for c in chosen
    ]
    align = ["---", "--:", "---"] + ["--:"] * 4
    return "\n".join(lines) + "\n\n" + table(words["head"], align, rows)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def size(nbytes: int) -> str:
    """Return a number of bytes as text.

    >>> size(2**24)
    '16 MB'
    """
    return f"{nbytes // 2**20} MB" if nbytes >= 2**20 else f"{nbytes // 2**10} KB"


def milliseconds(seconds: float) -> str:
    """Format milliseconds with three significant digits, without an exponent."""
    value = seconds * 1e3
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def replace_between_marks(page: str, name: str, text: str) -> str:
    """Return the page with ``text`` between the marks of ``name``.

    Raises:
        ValueError: the page lacks these marks.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in page or end not in page:
        raise ValueError(f"no marks {begin} and {end}")
    marks = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return marks.sub(lambda _: f"{begin}\n{text}{end}", page, count=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capabilities", type=Path, help="of `dualml capabilities --json`")
    parser.add_argument("--costs", type=Path, help="cost.json of a run folder")
    asked = parser.parse_args()
    if asked.capabilities is None and asked.costs is None:
        parser.error("name --capabilities, --costs or both")
    makers = {"capabilities": (asked.capabilities, capabilities)}
    makers["predictions"] = (asked.costs, predictions)
    for path in PAGES:
        page = path.read_text("utf-8")
        for name, (source, render) in makers.items():
            if source is not None:
                lang = "zh" if path.name.endswith(".zh.md") else "en"
                page = replace_between_marks(
                    page, name, render(json.loads(source.read_text("utf-8")), lang)
                )
        path.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
