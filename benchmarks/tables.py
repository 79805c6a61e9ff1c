"""The measured rows as text in English or Chinese, and as tables on a terminal."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Record = dict[str, Any]


@cache
def words(lang: str) -> dict[str, Any]:
    """Return the texts of a language; ``rows`` and ``patterns`` map English to that language."""
    path = Path(__file__).with_name("words") / f"{lang}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def machine(threads: int) -> list[str]:
    """Return the facts that the figures depend on: processor, cores, load, versions."""
    from dualml.common.machine import environment

    facts = environment()
    keys = ("cpu", "cores", "memory", "platform")
    lines = [f"{key}: {facts[key]}" for key in keys if key in facts]
    versions = [f"python {platform.python_version()}"]
    for name in ("dualml", "numpy", "torch", "mindspore"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    lines += [
        f"versions: {', '.join(versions)}",
        f"threads and cores used: {threads} a process",
    ]
    if hasattr(os, "getloadavg"):
        lines.append(f"load average over the last 15 minutes: {os.getloadavg()[2]:.1f}")
    return lines


def cells(record: Record, lang: str = "en") -> list[str]:
    """Return one line of the table."""
    texts, ratio = words(lang), record["ratio"]
    unit, other = record["unit"], record["other"]
    outcome = "" if record["met"] is None else texts["met" if record["met"] else "missed"]
    if ratio and record["met"] is None and unit != "%":  # a share is not faster than another
        times = 1 / ratio["median"]
        outcome = (f"{times:.2f}" if times >= 0.1 else f"{times:.1g}") + texts["faster"]
    limit = record["target"]
    return [
        translate_row(record["what"], lang),
        translate_row(record["against"], lang),
        f"{figure(record['ours'])} {unit}",
        "" if other is None else f"{figure(other)} {unit}",
        shares(ratio) if ratio else "",
        "" if limit is None else f"≤ {limit:g}" + ("" if ratio else f" {unit}"),
        outcome,
        translate_row(record["note"], lang),
    ]


def shares(ratio: Record) -> str:
    """Format median and quartiles; a single measurement has no quartiles."""
    less = 0 if ratio["low"] >= 0.1 else 2  # a gain of a hundred times needs more digits
    middle, *ends = (
        f"{ratio[k]:.{n + less}f}" for k, n in (("median", 3), ("low", 2), ("high", 2))
    )
    return f"{middle} ({ends[0]} – {ends[1]})" if ratio["low"] < ratio["high"] else middle


def figure(value: float) -> str:
    """Format a number with three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


@cache
def patterns(lang: str) -> list[tuple[re.Pattern[str], str]]:
    """Return English patterns with groups → their text in the language."""
    given = words(lang).get("patterns", {}).items()
    return [(re.compile(re.escape(text).replace(r"\{\}", "(.+?)")), there) for text, there in given]


def translate_row(text: str, lang: str) -> str:
    """Translate the text of a row: as a whole, or by the first pattern that it matches."""
    rows = words(lang).get("rows", {})
    if text in rows:
        return str(rows[text])
    for pattern, there in patterns(lang):
        if match := pattern.fullmatch(text):
            return there.format(*(translate_row(part, lang) for part in match.groups()))
    return text


def by_section(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records by section, in order."""
    sections: dict[str, list[Record]] = {}
    for record in records:
        sections.setdefault(record["section"], []).append(record)
    return sections


def show(records: Sequence[Record], facts: Sequence[str], console: Console) -> None:
    """Print the tables on a terminal."""
    for section, rows in by_section(records).items():
        table = Table(title=section, title_justify="left", title_style="bold")
        for number, name in enumerate(words("en")["head"]):
            table.add_column(name, justify="right" if 2 <= number <= 5 else "left")
        for record in rows:
            line = cells(record)
            style = "red" if record["met"] is False else "green" if record["met"] else ""
            table.add_row(*line[:6], f"[{style}]{line[6]}[/]" if style else line[6], line[7])
        console.print(table)
    for fact in facts:
        console.print(fact, style="dim", highlight=False)
