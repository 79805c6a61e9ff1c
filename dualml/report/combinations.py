"""What of PyTorch, CUDA, MindSpore and CANN goes together, as tables for docs/install.md.

``python -m dualml.report.combinations DOCS`` writes them into the pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dualml.doctor.fit import published
from dualml.files import write_bytes
from dualml.report.blocks import Cells, Column, Table
from dualml.report.page.markdown import between
from dualml.report.page.markdown import table as markdown
from dualml.words import LANGUAGES, Words, numbers

PAGES = {"en": "install.md", "zh": "install.zh.md"}
#: The tables stand between these lines.
BEGIN, END = "<!-- combinations: begin -->", "<!-- combinations: end -->"
#: Table → its columns, each with the field of a row where they have other names.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "torch": {"torch": "version", "torchvision": "", "python": "", "cuda": "", "sources": ""},
    "cuda": {
        "cuda": "version",
        "driver": "",
        "toolkit_driver": "",
        "capability": "",
        "sources": "",
    },
    "mindspore": {"mindspore": "version", "python": "", "cann": "", "hdk": "driver", "sources": ""},
}


def tables(words: Words) -> Iterator[Table]:
    for name, columns in COLUMNS.items():
        heads = [Column(key, words(f"combinations.column.{key}")) for key in columns]
        rows: list[Cells] = [
            [cell(row.get(field or key)) for key, field in columns.items()]
            for row in published()[name]
        ]
        yield Table(name, words(f"combinations.table.{name}"), heads, rows)


def cell(value: Any) -> str:
    if value is None:
        return numbers.NONE
    return ", ".join(value) if isinstance(value, list) else str(value)


def block(lang: str) -> str:
    """What stands between the marks of a page."""
    words = Words(lang)
    shown = [f"**{table.caption}**\n\n{markdown(table)}" for table in tables(words)]
    shown += [f"**{words('combinations.sources')}**\n\n" + "\n".join(sources(words))]
    return "\n\n".join([BEGIN, *shown, END])


def sources(words: Words) -> Iterator[str]:
    """Items of a list, with links: a table has none."""
    for name, row in published()["sources"].items():
        yield f"- `{name}`: {words('combinations.source', **row)}"


def main(folder: Path) -> None:
    for lang in LANGUAGES:
        path = folder / PAGES[lang]
        page = between(path.read_text("utf-8"), BEGIN, END, block(lang))
        write_bytes(path, page.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
