"""Render a tree of blocks as Markdown, with figures as linked files and formulas as LaTeX.

Texts cannot become markup: everything that Markdown or HTML would interpret is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dualml.common.errors import UserError
from dualml.report import blocks
from dualml.report.blocks import Block, Cell, Page, Table
from dualml.report.figure import Figure


def render_markdown(page: Page) -> str:
    """Return the page as Markdown, for editors and code hosts."""
    lines = [f"# {escape(page.title)}"]
    lines += [render_inline(page.question)] if page.question else []
    lines += [*_blocks(page.blocks, 2), "---", render_inline(page.footer)]
    return "\n\n".join(lines) + "\n"


def _blocks(many: Iterable[Block], level: int) -> Iterator[str]:
    """Yield the paragraphs of blocks; headings begin at ``level``."""
    for block in many:
        match block:
            case blocks.Prose(text):
                yield render_inline(text)
            case blocks.MarkdownBlock(text):
                yield text.strip()
            case blocks.Bullets(items):
                yield "\n".join(map(_item, items))
            case Table(caption=caption):
                yield from (f"**{escape(caption)}**", table(block))
            case Figure(name, caption, alt):
                yield from (f"![{escape(alt)}](figures/{name}.svg)", f"*{escape(caption)}*")
            case blocks.Code(text, caption, who, language):
                yield (f"**{escape(who)}**, " if who else "") + f"`{caption}`"
                yield f"```{language}\n{text}\n```"
            case blocks.Formula(latex):
                yield f"$$\n{latex}\n$$"
            case blocks.VerdictBlock(text):
                yield f"**{escape(text)}**"
            case blocks.Notice(text):
                yield f"> {render_inline(text)}"
            case blocks.RowBlock(inside):
                yield from _blocks(inside, level)
            case blocks.Card(title, inside, code):
                yield from _headed_blocks(f"`{title}`" if code else escape(title), inside, level)
            case blocks.Fold(summary, inside):
                captioned = len(inside) == 1 and isinstance(inside[0], Table)
                yield from _headed_blocks("" if captioned else escape(summary), inside, level)
            case blocks.SectionBlock(title=title, blocks=inside):
                yield from _headed_blocks(escape(title), inside, level)


def _headed_blocks(heading: str, inside: Iterable[Block], level: int) -> Iterator[str]:
    """Yield a heading, if there is one, and the blocks below it."""
    if heading:
        yield f"{'#' * min(level, 6)} {heading}"
    yield from _blocks(inside, level + 1)


def _item(item: blocks.Item) -> str:
    """Return a list item on one line, with ⚠ before a warning and the text of its link in
    brackets."""
    link = f" ({escape(item.link)})" if item.link else ""
    return f"- {'⚠ ' if item.warning else ''}{render_inline(item.text)}{link}"


def escape(text: str) -> str:
    """Return a text on one line in which no character acts as markup: those of HTML, table borders,
    links and code are escaped, not removed."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", line)


def render_inline(text: str) -> str:
    """Return text with markup escaped, in which text in backquotes remains code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if k % 2 else _escape_part(part) for k, part in enumerate(parts))


def _escape_part(text: str) -> str:
    """Escape a part of a text and keep a space at each end that had one."""
    front, back = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{' ' * bool(front)}{escape(text)}{' ' * bool(back and text.strip())}"


def table(table: Table) -> str:
    """Return a table as Markdown, without its caption."""
    head = [c.label + (f" ({c.unit})" if c.unit else "") for c in table.columns]
    marks = ["---:" if c.show == "number" else "---" for c in table.columns]
    code = [c.show == "code" for c in table.columns]
    rows = (map(escape, head), marks, *(map(_cell, row, code) for row in table.cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(cell: Cell, code: bool) -> str:
    """Return a table cell, with its note in brackets; as code if ``code`` and its text allows
    that."""
    plain = code and cell.text and not re.search(r"[`|\n]", cell.text)
    text = f"`{cell.text}`" if plain else escape(cell.text)
    return text + (f" ({escape(cell.note)})" if cell.note else "")


def replace_between(text: str, begin: str, end: str, block: str) -> str:
    """Return ``text`` with its first part from the mark ``begin`` to the next mark ``end``, both
    included, replaced by ``block``, which should repeat the marks.

    Raises:
        UserError: ``text`` lacks a mark.
    """
    before, first, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise UserError(f"the page has no {begin} … {end}")
    return before + block + after
