"""A tree of blocks as one HTML file that loads nothing.

Every text is escaped where it enters the page; what is marked as safe here is made by this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from markupsafe import Markup, escape

from dualml.report import blocks
from dualml.report.blocks import Block, Cell, Column, Page, Table
from dualml.report.code import highlight
from dualml.report.draw import css, draw, script
from dualml.report.mathml import mathml
from dualml.words import Words

CODE = re.compile(r"`([^`]+)`")
#: Characters from which on a column of text needs room, and one of code may be broken.
LONG = 44


def html(page: Page) -> str:
    """The page with its style and its figures."""
    words = Words(page.lang)
    sections = [block for block in page.blocks if isinstance(block, blocks.Section)]
    links = [
        Markup('<li><a href="#{}">{}</a></li>').format(s.name, s.title) for s in sections if s.title
    ]
    drawn = any(isinstance(block, blocks.Figure) for block in blocks.walk(page.blocks))
    head = Markup("<h1>{}</h1>").format(page.title)
    if page.question:
        head += Markup('<p class="question">{}</p>').format(page.question)
    return str(
        Markup(
            '<!doctype html>\n<html lang="{lang}">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            "<title>{title}</title>\n<style>\n{css}\n</style>\n</head>\n<body>\n"
            '<nav aria-label="{contents}"><ol>{links}</ol></nav>\n'
            "<main>\n<header>{head}</header>\n{body}\n"
            "<footer><p>{footer}</p></footer>\n</main>\n{script}</body>\n</html>\n"
        ).format(
            lang=words("lang"),
            title=page.title,
            css=Markup(_css() + css()),
            contents=words("page.contents"),
            links=Markup("\n").join(links),
            head=head,
            body=Writer().all(page.blocks),
            footer=page.footer,
            script=Markup("<script>\n{}</script>\n").format(Markup(script())) if drawn else "",
        )
    )


def _css() -> str:
    return (files("dualml.report.page") / "style.css").read_text(encoding="utf-8")


class Writer:
    """Blocks to elements; ``level`` is that of the next heading."""

    def __init__(self, level: int = 2) -> None:
        self.level = level

    def all(self, many: Iterable[Block]) -> Markup:
        """One after the other; cards that follow one another share a grid."""
        out: list[Markup] = []
        cards: list[Markup] = []
        for block in many:
            if isinstance(block, blocks.Card):
                cards.append(self.block(block))
                continue
            if cards:
                out.append(_grid("cards", cards))
                cards = []
            out.append(self.block(block))
        if cards:
            out.append(_grid("cards", cards))
        return Markup("\n").join(out)

    def block(self, block: Block) -> Markup:
        match block:
            case blocks.Prose(text, small):
                mark = Markup(' class="small"') if small else ""
                return Markup("<p{}>{}</p>").format(mark, quoted(text))
            case blocks.Bullets(items):
                rows = Markup("\n").join(map(self.item, items))
                return Markup("<ul>\n{}\n</ul>").format(rows)
            case Table():
                return self.table(block)
            case blocks.Figure():
                return self.figure(block)
            case blocks.Code():
                return self.code(block)
            case blocks.Formula(latex):
                return Markup('<div class="formula">{}</div>').format(Markup(mathml(latex)))
            case blocks.Verdict(text, tone):
                return Markup('<p class="verdict {}">{}</p>').format(tone, quoted(text))
            case blocks.Notice(text):
                return Markup('<p class="notice">{}</p>').format(quoted(text))
            case blocks.Card(title, inside, code):
                heading = Markup("<code>{}</code>").format(title) if code else title
                return Markup('<article class="card">\n<h4>{}</h4>\n{}\n</article>').format(
                    heading, self.all(inside)
                )
            case blocks.Row(inside):
                return _grid("row", [self.block(b) for b in inside])
            case blocks.Fold(summary, inside, name):
                return Markup("<details{}>\n<summary>{}</summary>\n{}\n</details>").format(
                    _id(name), quoted(summary), Writer(3).all(inside)
                )
            case blocks.Section(name, title, inside):
                return self.section(name, title, inside)
        raise TypeError(f"no HTML for {type(block).__name__}")

    def section(self, name: str, title: str, inside: Sequence[Block]) -> Markup:
        heading = Markup("<h{0}>{1}</h{0}>\n").format(self.level, title) if title else ""
        return Markup("<section{}>\n{}{}\n</section>").format(
            _id(name), heading, Writer(self.level + 1).all(inside)
        )

    def item(self, item: blocks.Item) -> Markup:
        mark = Markup(' class="warning"') if item.warning else ""
        link = Markup("")
        if item.target:
            link = Markup(' <a class="see" href="#{}">{}</a>').format(item.target, item.link or "↗")
        return Markup("<li{}>{}{}{}</li>").format(
            mark, "⚠ " if item.warning else "", quoted(item.text), link
        )

    def figure(self, block: blocks.Figure) -> Markup:
        return Markup(
            '<figure id="figure-{}" style="max-width: {}px">\n<div class="scroll">{}</div>\n'
            "<figcaption>{}</figcaption>\n</figure>"
        ).format(block.name, block.width, Markup(draw(block)), quoted(block.caption))

    def code(self, block: blocks.Code) -> Markup:
        who = Markup("<strong>{}</strong> ").format(block.who) if block.who else ""
        return Markup(
            '<div class="listing"><p class="small">{}<code>{}</code></p>\n'
            '<pre tabindex="0"><code>{}</code></pre></div>'
        ).format(who, block.caption, Markup(highlight(block.text)))

    def table(self, table: Table) -> Markup:
        rows = list(table.cells)
        styles = [_style(c, [row[k] for row in rows]) for k, c in enumerate(table.columns)]
        head = Markup("").join(_head(c, s) for c, s in zip(table.columns, styles, strict=True))
        body = Markup("\n").join(
            Markup("<tr>{}</tr>").format(
                Markup("").join(
                    _cell(c, s, k) for k, (c, s) in enumerate(zip(row, styles, strict=True))
                )
            )
            for row in rows
        )
        return Markup(
            '<div class="scroll" tabindex="0" role="region" aria-label="{caption}">\n'
            '<table id="table-{name}">\n<caption><span>{caption}</span></caption>\n'
            "<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
        ).format(caption=table.caption, name=table.name, head=head, body=body)


def quoted(text: str) -> Markup:
    """Escaped, with what stands in backquotes as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def _id(name: str) -> Markup:
    return Markup(' id="{}"').format(name) if name else Markup("")


def _grid(kind: str, made: Sequence[Markup]) -> Markup:
    return Markup('<div class="{}">\n{}\n</div>').format(kind, Markup("\n").join(made))


def _style(column: Column, cells: Sequence[Cell]) -> Markup:
    """The classes of a column: how it is set, and whether it needs room."""
    longest = max((len(cell.text) for cell in cells), default=0)
    names = f"{column.show} {'long' if longest > LONG else ''}".replace("text", "").strip()
    return Markup(' class="{}"').format(names) if names else Markup("")


def _head(column: Column, style: Markup) -> Markup:
    unit = Markup(' <span class="unit">{}</span>').format(column.unit) if column.unit else ""
    return Markup('<th scope="col"{}>{}{}</th>').format(style, column.label, unit)


def _cell(cell: Cell, style: Markup, k: int) -> Markup:
    text: Markup | str = cell.text
    if cell.tone:
        text = Markup('<span class="tone {}">{}</span>').format(cell.tone, cell.text)
    note = Markup("<small>{}</small>").format(cell.note) if cell.note else ""
    tag = Markup('<th scope="row"{}>{}{}</th>') if k == 0 else Markup("<td{}>{}{}</td>")
    return tag.format(style, text, note)
