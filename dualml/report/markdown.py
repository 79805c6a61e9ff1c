"""A `Document` as Markdown, with figures beside it and formulas as LaTeX."""

from __future__ import annotations

import re

from dualml.report.cells import Cell, Table
from dualml.report.document import Document


def markdown(document: Document) -> str:
    """The page for editors and code hosts; texts from the run folder cannot become markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # escaping is Markdown's own: the filter `md`
        loader=PackageLoader("dualml.report", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = escape
    environment.globals["table"] = table
    text = environment.get_template("report.md.j2").render(d=document, w=document.words)
    return re.sub(r"\n{3,}", "\n\n", text)


def escape(text: str) -> str:
    """One line in which nothing is markup: no HTML, no table borders, no links, no code."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", line)


def table(made: Table) -> str:
    head = [h.label + (f" ({h.unit})" if h.unit else "") for h in made.head]
    marks = ["---:" if h.number else "---" for h in made.head]
    lines = [_row([escape(h) for h in head]), _row(marks)]
    lines += [_row([_cell(cell) for cell in row]) for row in made.rows]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    plain = cell.kind == "code" and not re.search(r"[`|\n]", cell.text) and cell.text
    text = f"`{cell.text}`" if plain else escape(cell.text)
    return text + (f" ({escape(cell.note)})" if cell.note else "")
