"""The report on the run folders of `fake_splits`, as data."""

from __future__ import annotations

from pathlib import Path

import page_parts

from dualml.report.blocks import Table


def table(folder: Path, name: str) -> Table:
    return page_parts.tables(page_parts.page(folder))[name]


def row(folder: Path, name: str, *texts: str) -> dict[str, str]:
    """Return column → text of the only row of a table that contains all of these texts."""
    return page_parts.row(table(folder, name), *texts)
