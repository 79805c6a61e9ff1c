"""The report on the run folders of `fake_splits`, as data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dualml.report.cells import Table
from dualml.report.document import Document, compose
from dualml.report.load import load
from dualml.report.words import Words


@cache
def document(folder: Path, lang: str = "en") -> Document:
    return compose(load([folder]), Words(lang))


def table(folder: Path, name: str) -> Table:
    made = document(folder)
    every = [*made.settings, *(t for c in made.chapters for t in c.tables)]
    return next(t for t in every if t.name == name)


def row(folder: Path, name: str, *texts: str) -> dict[str, str]:
    """Column → text of the one row of a table that holds all of these."""
    made = table(folder, name)
    found = [line for line in made.rows if set(texts) <= {cell.text for cell in line}]
    assert len(found) == 1, (texts, len(found))
    return dict(zip([h.label for h in made.head], [c.text for c in found[0]], strict=True))
