"""The tables of the report on the run folders of `fake_nodes`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dualml.report import render
from dualml.report.batch import batch_table
from dualml.report.cells import Table
from dualml.report.load import load
from dualml.report.model import Run
from dualml.report.modes import missing_table, mode_table
from dualml.report.scaling_tables import scaling_table, speedup_table
from dualml.report.words import Words

EN = Words("en")
TABLES = {
    "scaling": scaling_table,
    "speed-up": speedup_table,
    "modes": mode_table,
    "modes-missing": missing_table,
    "batch": batch_table,
}


def page_of(folder: Path, out: Path, lang: str) -> tuple[str, str, str]:
    """Language, HTML and Markdown."""
    made = render([folder], out, lang)[:2]
    return lang, *(p.read_text("utf-8") for p in made)


@cache
def run_of(folder: Path) -> Run:
    return load([folder])


def table(folder: Path, name: str, words: Words = EN) -> Table:
    made = TABLES[name](run_of(folder), words)
    assert made is not None
    assert made.name == name
    return made


def row(folder: Path, name: str, *texts: str) -> list[str]:
    """Texts of the one row of a table that holds all of these."""
    lines = [[cell.text for cell in line] for line in table(folder, name).rows]
    found = [line for line in lines if set(texts) <= set(line)]
    assert len(found) == 1, (texts, lines)
    return found[0]


def notes(made: Table, *texts: str) -> list[str]:
    line = next(r for r in made.rows if set(texts) <= {c.text for c in r})
    return [c.note for c in line]
