"""Render a tree of blocks as one self-contained HTML file that loads nothing.

Every text is escaped when it enters the page; only markup made by this package is marked as safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import count, groupby

from markupsafe import Markup, escape

from dualml.common.words import Messages
from dualml.report import blocks
from dualml.report.blocks import Block, Column, Page, Table
from dualml.report.code import highlight
from dualml.report.draw import css, draw, script
from dualml.report.figure import Figure
from dualml.report.mathml import mathml

CODE = re.compile(r"`([^`]+)`")
#: Columns with texts of more characters get a minimum width; long code may be broken.
LONG_TEXT_CHARS = 44
LINES = Markup("\n")
#: Tables with more columns take the full width of the page.
WIDE = 6


def render_html(page: Page) -> str:
    """Return the page as HTML with its style, figures and scripts."""
    words = Messages(page.lang)
    sections = [
        block for block in page.blocks if isinstance(block, blocks.SectionBlock) and block.title
    ]
    links = [tag("li", tag("a", s.title, href=f"#{s.name}")) for s in sections]
    drawn = any(isinstance(block, Figure) for block in blocks.walk(page.blocks))
    question = tag("p", page.question, class_="question") if page.question else ""
    return Markup(_read("page.html")).format(
        lang=words("lang"),
        title=page.title,
        css=Markup(page_css()),
        contents=words("page.contents"),
        links=LINES.join(links),
        head=tag("h1", page.title) + question,
        body=render_blocks(page.blocks, 2),
        footer=page.footer,
        script=Markup("<script>\n{}</script>\n").format(Markup(script())) if drawn else "",
    )


def page_css() -> str:
    """Return the CSS of pages and figures."""
    return _read("style.css") + css()


def _read(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("dualml.report.page") / name).read_text(encoding="utf-8")


def tag(name: str, /, *inside: str, **attributes: str) -> Markup:
    """Return an element; content that is not markup yet is escaped, and empty attributes are left
    out. ``class_`` becomes ``class``, ``aria_label`` becomes ``aria-label``."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(v)}"' for key, v in attributes.items() if v
    )
    return Markup(f"<{name}{shown}>{''.join(map(escape, inside))}</{name}>")


def render_inline(text: str) -> Markup:
    """Return text as escaped HTML; text in backquotes becomes code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def _lines(name: str, *inside: str, **attributes: str) -> Markup:
    """Return an element with each part of its content on its own line."""
    return tag(name, "\n", LINES.join(inside), "\n", **attributes)


def render_blocks(many: Iterable[Block], level: int) -> Markup:
    """Return blocks as HTML, one after the other, for a page with `page_css`; consecutive cards
    share a grid.

    Args:
        many: the blocks.
        level: level of the next heading.
    """
    parts: list[Markup] = []
    for cards, group in groupby(many, key=lambda block: isinstance(block, blocks.Card)):
        each = [_block(block, level) for block in group]
        parts += [_lines("div", *each, class_="cards")] if cards else each
    return LINES.join(parts)


def _block(block: Block, level: int) -> Markup:
    """Return one block as HTML; ``level`` is the level of the next heading."""
    match block:
        case blocks.Prose(text, small):
            return tag("p", render_inline(text), class_="small" if small else "")
        case blocks.MarkdownBlock(text):
            from markdown_it import MarkdownIt

            rules = MarkdownIt("commonmark", {"html": False}).enable("table")
            return Markup(rules.render(text))
        case blocks.Bullets(items):
            return _lines("ul", *map(_item, items))
        case Table():
            return _table(block)
        case Figure(name, caption):
            drawn = tag("div", Markup(draw(block)), class_="scroll")
            legend = tag("figcaption", render_inline(caption))
            width = f"max-width: {block.width}px"
            return _lines("figure", drawn, legend, id=f"figure-{name}", style=width)
        case blocks.Code(text, caption, who, language):
            framework = tag("strong", who) + " " if who else ""
            head = tag("p", framework, tag("code", caption), class_="small")
            code = tag("pre", tag("code", Markup(highlight(text, language))), tabindex="0")
            return tag("div", head, "\n", code, class_="listing")
        case blocks.Formula(latex):
            return tag("div", _formula(latex), class_="formula")
        case blocks.VerdictBlock(text, tone):
            return tag("p", render_inline(text), class_=f"verdict {tone}")
        case blocks.Notice(text):
            return tag("p", render_inline(text), class_="notice")
        case blocks.Card(title, inside, code):
            heading = tag("h4", tag("code", title) if code else title)
            return _lines("article", heading, render_blocks(inside, level), class_="card")
        case blocks.RowBlock(inside):
            return _lines("div", *(_block(b, level) for b in inside), class_="row")
        case blocks.Fold(summary, inside, name):
            return _lines(
                "details", tag("summary", render_inline(summary)), render_blocks(inside, 3), id=name
            )
        case blocks.SectionBlock(name, title, inside):
            headings = [tag(f"h{level}", title)] if title else []
            return _lines("section", *headings, render_blocks(inside, level + 1), id=name)
    raise TypeError(f"no HTML for {type(block).__name__}")


def _item(item: blocks.Item) -> Markup:
    """Return a list item with a link to its evidence; a warning is marked with ⚠."""
    link = tag("a", item.link or "↗", class_="see", href=f"#{item.target}")
    parts = (
        "⚠ " if item.warning else "",
        render_inline(item.text),
        " " + link if item.target else "",
    )
    return tag("li", *parts, class_="warning" if item.warning else "")


def _formula(latex: str) -> Markup:
    """Return a formula as MathML, or as LaTeX source if `mathml` refuses it."""
    try:
        return Markup(mathml(latex))
    except (ValueError, IndexError):
        return tag("code", latex)


def _table(table: Table) -> Markup:
    """Return a table as HTML in a box that scrolls horizontally."""
    rows = list(table.cells)
    styles = [_style(c, [row[k].text for row in rows]) for k, c in enumerate(table.columns)]
    head = [
        tag(
            "th",
            c.label,
            " " + tag("span", c.unit, class_="unit") if c.unit else "",
            scope="col",
            class_=style,
        )
        for c, style in zip(table.columns, styles, strict=True)
    ]
    body = [tag("tr", *map(_cell, row, styles, count())) for row in rows]
    caption = tag("caption", tag("span", table.caption))
    parts = caption, tag("thead", tag("tr", *head)), _lines("tbody", *body)
    across = len(table.columns)
    grid = _lines("table", *parts, id=f"table-{table.name}", style=f"--columns: {across}")
    place = "scroll wide" if across > WIDE else "scroll"
    return _lines("div", grid, class_=place, tabindex="0", role="region", aria_label=table.caption)


def _style(column: Column, texts: Sequence[str]) -> str:
    """Return the CSS classes of a column: alignment, and ``long`` if it needs space."""
    longest = max(map(len, texts), default=0)
    return f"{column.show} {'long' if longest > LONG_TEXT_CHARS else ''}".replace(
        "text", ""
    ).strip()


def _cell(cell: blocks.Cell, style: str, k: int) -> Markup:
    """Return column ``k`` of a table row as HTML; the first column is the row's heading."""
    text = tag("span", cell.text, class_=f"tone {cell.tone}") if cell.tone else cell.text
    text = tag("a", text, href=cell.href) if cell.href else text
    note = tag("small", cell.note) if cell.note else ""
    if k:
        return tag("td", text, note, class_=style)
    return tag("th", text, note, scope="row", class_=style)
