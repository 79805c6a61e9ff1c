"""The report's sentences and tables on the run folders of `fake_partitions`."""

from __future__ import annotations

from pathlib import Path

import page_parts
from page_parts import findings_by_key as say_all

from dualml.common.words import Messages
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Table

EN, ZH = Messages("en"), Messages("zh")
#: The report's chapters on partitions.
MINE = ("partitions", "sampling", "skew")
#: Table → its topic.
TOPICS = {
    "partitions": "partitions",
    "sampling": "sampling",
    "skew": "skew",
    "uneven": "skew",
}


def unbroken(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def unbroken_findings(folder: Path, lang: str = "en") -> dict[str, list[str]]:
    """Return key → sentences, with line breaks removed."""
    return {key: [unbroken(t) for t in texts] for key, texts in say_all(folder, lang).items()}


def table(run: RunData, name: str, words: Messages = EN) -> Table:
    return page_parts.evidence_tables(run, TOPICS[name], words)[name]


def row(table: Table, *texts: str) -> list[str]:
    """Return the texts of the only row that begins with these texts."""
    lines = [[cell.text for cell in line] for line in table.cells]
    matches = [line for line in lines if line[: len(texts)] == list(texts)]
    assert len(matches) == 1, (texts, lines)
    return matches[0]


def anchors(page: str) -> list[str]:
    return [name for name in page_parts.sections(page) if name in MINE]
