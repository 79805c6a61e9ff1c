"""Show benchmark results as tables: in the terminal, and in docs/gpu.md in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.common.files import write_bytes
from dualml.common.json_types import JsonMapping
from dualml.common.words import Messages, numbers, section_messages
from dualml.interface.bench.section import REASON, BenchSection
from dualml.report.blocks import Cell, Column, Table
from dualml.report.page.markdown import escape
from dualml.report.page.markdown import table as markdown
from dualml.report.verdicts import format_divergence

PAGES = {"en": "gpu.md", "zh": "gpu.zh.md"}
LINKS = {"en": "English · [中文](gpu.zh.md)", "zh": "[English](gpu.md) · 中文"}
#: Columns of numbers.
NUMBERS = (
    "envelopes",
    "accuracies",
    "passed",
    "failed",
    "skipped",
    "seconds",
    "product",
    "convolution",
    "milliseconds",
    "per_ours",
    "per_float32",
    "loss",
    "first_gap",
    "last_gap",
    "ranks",
    "bytes",
    "allocated",
    "reserved",
)


def tables(results: JsonMapping, lang: str) -> Iterator[Table]:
    """Yield one table per section in the results, also for one that was not run for lack of
    time."""
    words = Messages(lang)
    for section in results["sections"]:
        yield section_table(section, words)


def section_table(section: Mapping[str, Any], words: Messages) -> Table:
    """Make the table of a section, without the columns that no row has (the first stays if there
    would be none), and with a column of reasons if a row has one."""
    keys, rows = list(section["columns"]), section["rows"]
    shown = [key for key in keys if any(key in row for row in rows)] or keys[:1]
    shown += [REASON] if any(REASON in row for row in rows) else []
    columns = [
        Column(
            key,
            words(f"bench.column.{key}"),
            column_unit(key, words),
            "number" if key in NUMBERS else "text",
        )
        for key in shown
    ]
    cells = [[cell(key, row, words) for key in shown] for row in rows]
    return Table(section["name"], words(f"bench.title.{section['name']}"), columns, cells)


def column_unit(key: str, words: Messages) -> str:
    """Return the unit of the column ``key``, or an empty string if it has none."""
    return words.get(f"bench.unit.{key}", "")


def cell(key: str, row: JsonMapping, words: Messages) -> Cell:
    """Return the cell of one value, empty if the row lacks it; of a failed row the reason, verdict
    or number of failures is marked."""
    if key not in row:
        return Cell("")
    value, wrong = row[key], row.get("ok") is False and key in (REASON, "verdict", "failed")
    return Cell(cell_text(key, value, words), "bad" if wrong else "")


def cell_text(key: str, value: Any, words: Messages) -> str:
    """Format a value: numbers rounded, accuracies and gaps in percent, quartiles in brackets after
    the median, a dash for None, names in the page's language."""
    if key == REASON:
        return reason_text(value, words)
    if value is None:
        return numbers.NO_VALUE
    if isinstance(value, bool):
        return words("bench.value.yes" if value else "bench.value.no")
    if key == "verdict":
        return words(f"verdict.{value.replace(' ', '_')}")
    if key == "accuracies":
        return " / ".join(f"{100 * x:.2f}" for x in value)
    if key == "pair":
        return " – ".join(value)
    if isinstance(value, list):
        low, median, high = map(numbers.quantity, value)
        return f"{median} ({low} – {high})"
    if key in ("first_gap", "last_gap"):
        return f"{100 * value:+.2g}"
    if isinstance(value, float):
        return numbers.quantity(value)
    return words.get(f"bench.value.{value}", str(value))


def reason_text(value: Any, words: Messages) -> str:
    """Format a reason: dualml's own in the page's language, others unchanged."""
    if isinstance(value, str):
        return value
    if value["key"] == "divergence":
        return format_divergence(value, words)
    return words(f"bench.reason.{value['key']}", **{k: v for k, v in value.items() if k != "key"})


def facts(results: JsonMapping, lang: str) -> list[str]:
    """Return the facts about the machine that affect the figures, one line each in the order of
    their messages, without those that are not known."""
    words, machine = Messages(lang), results["machine"]
    named = section_messages(lang, "bench.fact").items()
    return [
        words("bench.fact_line", name=name, value=machine[key])
        for key, name in named
        if machine.get(key)
    ]


def render_page(
    known: Sequence[BenchSection], lang: str, results: Mapping[str, Any] | None = None
) -> str:
    """Render ``docs/gpu.md``, or in Chinese ``docs/gpu.zh.md``, as Markdown; a section that has no
    rows says that it was not measured.

    Args:
        known: all sections, in their order on the page.
        results: results of `dualml.interface.bench.run.run_sections`; None if nothing was run.
    """
    words, done = Messages(lang), {s["name"]: s for s in (results or {}).get("sections", ())}
    parts = [f"# {words('bench.page.title')}", LINKS[lang]]
    if results is None:
        parts.append(words("bench.page.nothing"))
    parts.append(words("bench.page.head"))
    if results is not None:
        parts.append(words("bench.page.machine"))
        parts.append("\n".join(f"- {escape(line)}" for line in facts(results, lang)))
        parts.append(words("bench.page.took", seconds=f"{results['seconds']:.0f}"))
    for section in known:
        outcome = done.get(section.name)
        parts.append(f"## {words(f'bench.title.{section.name}')}")
        parts.append(words(f"bench.about.{section.name}"))
        rows = outcome is not None and outcome["rows"]
        parts.append(
            markdown(section_table(outcome, words)) if outcome and rows else words("bench.not_run")
        )
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(map(str.strip, parts))) + "\n"


def write_pages(
    folder: Path, known: Sequence[BenchSection], results: Mapping[str, Any] | None
) -> list[Path]:
    """Write ``gpu.md`` and ``gpu.zh.md``, see `render_page`, into an existing folder, replacing
    earlier ones; return their paths."""
    paths = []
    for lang, name in PAGES.items():
        paths.append(folder / name)
        write_bytes(paths[-1], render_page(known, lang, results).encode())
    return paths
