"""The table of pairs at real size, in docs/gauntlet.md and its Chinese page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from table import PAGES, causes, count_unmatched, paired, reason, replace_table, verdict_text

HEADS = {
    "en": (
        "pair",
        "of",
        "parameters",
        "steps, CPU s",
        "`compare`, CPU s",
        "time / (5 steps of both)",
        "MB",
        "peak / larger step",
        "paired",
        "verdict",
        "first divergence",
        "cause, tested",
        "repaired",
    ),
    "zh": (
        "模型",
        "实现",
        "参数量",
        "一步，CPU 秒",
        "`compare`，CPU 秒",
        "时间 /（两侧各 5 步）",
        "MB",
        "峰值 / 较大一侧的一步",
        "已配对",
        "判定",
        "首个差异",
        "原因（已检验）",
        "修好后",
    ),
}
ALIGNMENT = ("---", "---", *("--:",) * 7, *("---",) * 4)


def write(rows: Sequence[dict[str, Any]]) -> None:
    """Write the table between the marks of each page."""
    for lang, page in PAGES.items():
        lines = [HEADS[lang], ALIGNMENT, *(format_row(row, lang) for row in rows)]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
        replace_table(page, "real", text)


def format_row(row: dict[str, Any], lang: str) -> tuple[str, ...]:
    """Return the cells of one pair."""
    found, plain = row["compare"], row["plain"]
    first, explanation = found.get("first") or {}, found.get("explanation") or {}
    sides = "" if len(row["versions"]) > 1 else f", {row['sides'][0]} – {row['sides'][1]}"
    return (
        f"`{row['name']}`",
        " – ".join(f"{name} {version}" for name, version in row["versions"].items()) + sides,
        f"{plain[0]['parameters'] / 1e6:.0f} M",
        " / ".join(f"{one['busy_step']:.2g}" for one in plain),
        f"{found['busy']:.0f}",
        f"{row['time_ratio']:.1f}",
        f"{found['peak']:.0f}",
        f"{row['memory_ratio']:.1f}",
        paired(found),
        verdict_text(found["verdict"], lang),
        f"`{first['layer'] or first['tensor']}`" if first else reason(found, lang),
        causes(explanation, lang, count_unmatched(found)) if first else "",
        verdict_text(row["mended"], lang) if "mended" in row else "",
    )
