"""The history page: changes of the benchmark ratios over time, from ``benchmarks/history.json``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from _ext.pages import ROOT, Page
from _ext.words import table, words

# First: docs/ has a module `tables`, too.
sys.path.insert(0, str(ROOT / "benchmarks"))
from tables import translate_row

KEPT = ROOT / "benchmarks" / "history.json"


def pages() -> Iterator[Page]:
    yield Page("benchmarks-history", make=page)


def page(lang: str) -> str:
    """Return one table per section, with a row for each pair that was measured on several days."""
    texts = words(lang)["history"]
    kept: list[dict[str, Any]] = json.loads(KEPT.read_text("utf-8"))
    series: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in kept:
        series[row["section"], row["what"], row["against"]].append(row)
    sections: dict[str, list[list[str]]] = defaultdict(list)
    for (section, what, against), rows in series.items():
        by_date = {row["date"]: row["ratio"] for row in rows}  # the last of a day
        if len(by_date) > 1:
            steps = " → ".join(f"{ratio:g} ({date})" for date, ratio in by_date.items())
            sections[translate_row(section, lang)].append(
                [translate_row(what, lang), translate_row(against, lang), steps]
            )
    machines: dict[str, list[str]] = defaultdict(list)
    for row in kept:
        machines[row["machine"]].append(row["date"])
    facts = [[machine, min(dates), max(dates)] for machine, dates in machines.items()]
    head = [texts[key] for key in ("what", "against", "ratio")]
    parts = [f"# {texts['title']}", texts["intro"]]
    for section, rows in sections.items():
        parts += [f"## {section}", table(head, rows)]
    head = [texts[key] for key in ("machine", "first", "last")]
    parts += [f"## {texts['machines']}", table(head, facts)]
    return "\n\n".join(parts) + "\n"
