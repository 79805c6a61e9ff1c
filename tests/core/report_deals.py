"""What the report says, and what its tables hold, of the run folders of `fake_deals`."""

from __future__ import annotations

import re
from pathlib import Path

from test_report_analysis import say as say_all

from dualml.report.cells import Table
from dualml.report.model import Run
from dualml.report.partitions import partition_table
from dualml.report.sampling import sampling_table
from dualml.report.skew import skew_table
from dualml.report.uneven import uneven_table
from dualml.report.words import Words

EN, ZH = Words("en"), Words("zh")
#: The chapters.
MINE = ("partitions", "sampling", "skew")
TABLES = {
    "partitions": partition_table,
    "sampling": sampling_table,
    "skew": skew_table,
    "uneven": uneven_table,
}


def unbroken(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def say(folder: Path, lang: str = "en") -> dict[str, list[str]]:
    """Key → sentences."""
    return {key: [unbroken(t) for t in texts] for key, texts in say_all(folder, lang).items()}


def table(run: Run, name: str, words: Words = EN) -> Table:
    found = TABLES[name](run, words)
    assert found is not None
    return found


def row(made: Table, *texts: str) -> list[str]:
    """Texts of the one row that begins with these."""
    lines = [[cell.text for cell in line] for line in made.rows]
    found = [line for line in lines if line[: len(texts)] == list(texts)]
    assert len(found) == 1, (texts, lines)
    return found[0]


def anchors(page: str) -> list[str]:
    return re.findall(r'id="chapter-([a-z]+)"', page)
