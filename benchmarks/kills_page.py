"""The table of kills on docs/benchmarks-robustness, in both languages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import replace_between_marks, table
from tables import words

Row = dict[str, Any]
PAGES = [
    Path(__file__).parents[1] / "docs" / f"benchmarks-robustness{end}.md" for end in ("", ".zh")
]
ALIGN = ["--:", "---", "---", "---", "---", "--:", "--:", "---", "---"]


def seconds(value: float | None) -> str:
    """Return seconds as text, or – for None.

    >>> seconds(0.21), seconds(17.04), seconds(None)
    ('0.2 s', '17.0 s', '–')
    """
    return "–" if value is None else f"{value:.1f} s"


def cells(row: Row, text: dict[str, Any]) -> list[str]:
    """Return the cells of one kill; ✗ marks what is not as it should be."""
    mark = {True: "", False: " ✗"}
    victim, _, which = row["victim"].partition(" ")
    said = max(row.get("named_s", {}).values(), default=None)
    codes = sorted({str(c) for c in row.get("codes", {}).values() if c is not None})
    return [
        str(row["number"]),
        text["way"][row["way"]],
        row["backend"],
        text["victim"][victim].format(which),
        text["moment"][row["moment"]],
        seconds(said) + mark[row["named"] and row["remedy"]],
        seconds(row.get("gone_s")) + mark[not row["orphaned"]],
        ", ".join(codes) or "–",
        text["on"]["alone" if row["alone"] else "same"] + mark[row["same"]],
    ]


def page(rows: Sequence[Row], lang: str) -> str:
    """Return a sentence with all figures, and a table line for each kill."""
    text = words(lang)["kills"]
    named = [max(r["named_s"].values()) for r in rows if r.get("named_s")]
    gone = [r["gone_s"] for r in rows if r.get("gone_s") is not None]
    counts = {
        "n": len(rows),
        "named": sum(r["named"] and r["remedy"] for r in rows),
        "clean": sum(not r["orphaned"] for r in rows),
        "same": sum(r["same"] for r in rows),
        "digits": sum(r.get("last_digits", 0) for r in rows),
        "named_s": seconds(max(named, default=None)),
        "gone_s": seconds(max(gone, default=None)),
    }
    lines = table(text["head"], ALIGN, [cells(row, text) for row in rows])
    return text["sum"].format(**counts) + "\n\n" + lines


def write(rows: Sequence[Row]) -> None:
    for path in PAGES:
        lang = "zh" if path.name.endswith(".zh.md") else "en"
        path.write_text(
            replace_between_marks(path.read_text("utf-8"), "kills", page(rows, lang)), "utf-8"
        )
