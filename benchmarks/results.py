"""Write the measured rows as Markdown, between the marks of a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tables import Record, by_section, cells, translate_row, words

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
#: Facts that must agree for figures of two runs to be on one page.
SAME = ("cpu: ", "platform: ", "versions: ")


def markdown(records: Sequence[Record], facts: Sequence[str], lang: str = "en") -> str:
    """Return a line on the machine, and a table for each section."""
    parts = ["\n".join([f"{words(lang)['machine']}:", "", *(f"- {fact}" for fact in facts)])]
    align = ["---"] * 2 + ["--:"] * 4 + ["---"] * 2
    for section, rows in by_section(records).items():
        lines = [words(lang)["head"], align, *(cells(record, lang) for record in rows)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"### {translate_row(section, lang)}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def results(page: str) -> str | None:
    """Return the text between the marks, or None on a page without them."""
    found = re.search(f"{re.escape(BEGIN)}\n(.*?){re.escape(END)}", page, re.DOTALL)
    return found[1] if found else None


def merged(old: str, new: str) -> str:
    """Return the old results with the new tables, each in its place or, if it is new, at the
    end."""
    head, *tables = old.rstrip("\n").split("\n### ")
    known = {table.partition("\n")[0]: table.rstrip("\n") for table in tables}
    fresh = new.rstrip("\n").split("\n### ")[1:]
    known |= {table.partition("\n")[0]: table.rstrip("\n") for table in fresh}
    return "\n\n### ".join([head.rstrip("\n"), *known.values()]) + "\n"


def strange(page: str, facts: Sequence[str]) -> list[str]:
    """Return the facts that differ from the page's, whose other figures were measured elsewhere."""
    old = results(page)
    ours = [fact for fact in facts if fact.startswith(SAME)]
    return [fact for fact in ours if old is not None and f"- {fact}\n" not in old]


def write(path: Path, records: Sequence[Record], facts: Sequence[str], whole: bool) -> None:
    """Put the tables between the marks of a page, or into a new file; ``.zh.md`` is Chinese.

    Args:
        whole: whether everything was measured; otherwise unmeasured tables stay unchanged.
    """
    text = markdown(records, facts, "zh" if path.name.endswith(".zh.md") else "en")
    page = path.read_text("utf-8") if path.exists() else ""
    old = results(page)
    if old is not None:
        text = text if whole else merged(old, text)
        text = page.replace(f"{BEGIN}\n{old}{END}", f"{BEGIN}\n{text}{END}")
    path.write_text(text, "utf-8")
