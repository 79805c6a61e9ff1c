"""The tables of the report on the run folders of `fake_nodes`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import page_parts

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.experiment.store.run import RunData
from dualml.report import render
from dualml.report.blocks import Table

EN = Messages("en")
#: Table → its topic.
TOPICS = {
    "scaling": "scaling",
    "speed-up": "scaling",
    "modes": "modes",
    "modes-missing": "modes",
    "batch": "batch",
}


def page_of(folder: Path, out: Path, lang: str) -> tuple[str, str, str]:
    """Return language → HTML and Markdown of the report."""
    paths = render([folder], out, lang)[:2]
    return lang, *(p.read_text("utf-8") for p in paths)


@cache
def run_of(folder: Path) -> RunData:
    return load([folder])


def table(folder: Path, name: str, words: Messages = EN) -> Table:
    return page_parts.evidence_tables(run_of(folder), TOPICS[name], words)[name]


def row(folder: Path, name: str, *texts: str) -> list[str]:
    """Return the texts of the only row of a table that contains all of these texts."""
    lines = [[cell.text for cell in line] for line in table(folder, name).cells]
    matches = [line for line in lines if set(texts) <= set(line)]
    assert len(matches) == 1, (texts, lines)
    return matches[0]


def notes(table: Table, *texts: str) -> list[str]:
    line = next(r for r in table.cells if set(texts) <= {c.text for c in r})
    return [c.note for c in line]
