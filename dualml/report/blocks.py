"""A page as a tree of blocks. Texts are in the page's language; blocks do not know output formats.

`dualml.report.page` renders a tree to HTML and to Markdown, and tables to the terminal. Inline text
may quote `` `code` `` in backquotes; everything else in it is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # a table for the terminal must not wait for figures
    from dualml.report.figure import Figure

Tone: TypeAlias = Literal["", "good", "near", "bad", "muted"]
Show: TypeAlias = Literal["text", "number", "code"]


@dataclass(frozen=True)
class Prose:
    """A paragraph; ``small`` sets explanatory text in smaller letters."""

    text: str
    small: bool = False


@dataclass(frozen=True)
class MarkdownBlock:
    """Markdown written by a user (CommonMark with tables). HTML in it is displayed as text, not
    interpreted."""

    markdown: str


@dataclass(frozen=True)
class Bullets:
    """A bulleted list of sentences."""

    items: Sequence[Item]


@dataclass(frozen=True)
class Item:
    """One sentence of a list. ``warning`` marks a limitation of the results. ``target`` is the
    anchor of its evidence on the page (``table-speed``), shown as a link with the text ``link``;
    ``key`` identifies the message that the text was made from, such as ``speed.outside``."""

    text: str
    warning: bool = False
    target: str = ""
    key: str = ""
    link: str = ""


@dataclass(frozen=True)
class Cell:
    """A table cell with its colour (``tone``). ``note`` is printed below the text in small letters.
    ``shade`` is the darkness of the background in a terminal, from 0 (none) to 1. ``href`` links to
    another page."""

    text: str
    tone: Tone = ""
    note: str = ""
    shade: float = 0.0
    href: str = ""


#: The cells of a row; a plain string is a cell.
Cells: TypeAlias = list[Cell | str]


@dataclass(frozen=True)
class Column:
    """A table column. ``key`` names it in exported data; ``show`` says whether its cells are texts,
    numbers or code; ``unit`` is the unit in the page's language, ``measure`` its name in all
    languages. ``optional`` columns are dropped if a terminal is too narrow."""

    key: str
    label: str
    unit: str = ""
    show: Show = "text"
    measure: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first column holds the row headings. Plain strings are cells. The anchor is
    ``table-NAME``."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]

    @property
    def cells(self) -> Iterator[list[Cell]]:
        """Rows of the table with every plain string wrapped in a `Cell`."""
        for row in self.rows:
            yield [Cell(cell) if isinstance(cell, str) else cell for cell in row]


@dataclass(frozen=True)
class Code:
    """Source in Python, or another ``language`` that Pygments knows; ``caption`` names the file,
    ``who`` the framework it belongs to."""

    text: str
    caption: str = ""
    who: str = ""
    language: str = "python"


@dataclass(frozen=True)
class Formula:
    """A displayed LaTeX formula."""

    latex: str


@dataclass(frozen=True)
class VerdictBlock:
    """The answer of the page in one sentence, with its colour."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Notice:
    """A warning that must be read before the numbers."""

    text: str


@dataclass(frozen=True)
class Card:
    """A small titled box; consecutive cards are placed side by side. ``code``: the title is
    code."""

    title: str
    blocks: Sequence[Block]
    code: bool = False


@dataclass(frozen=True)
class RowBlock:
    """Blocks placed side by side if there is space: listings of the frameworks, small figures."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Fold:
    """Blocks that are collapsed below a summary line; expanded in print and in Markdown. ``name``:
    the anchor."""

    summary: str
    blocks: Sequence[Block]
    name: str = ""


@dataclass(frozen=True)
class SectionBlock:
    """A heading with its anchor and the blocks below it; nested sections have smaller headings."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole page: ``title`` is its heading, ``lang`` its language, ``question`` the question that
    it answers."""

    lang: str
    title: str
    question: str
    blocks: Sequence[Block]
    footer: str = ""


_Leaf: TypeAlias = (
    "Prose | MarkdownBlock | Bullets | Table | Figure | Code | Formula | VerdictBlock | Notice"
)
Block: TypeAlias = "_Leaf | Card | RowBlock | Fold | SectionBlock"


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield every block of a tree, parents before children, in reading order."""
    for block in blocks:
        yield block
        if isinstance(block, Card | RowBlock | Fold | SectionBlock):
            yield from walk(block.blocks)


def anchor(block: Block) -> str:
    """Return the anchor by which links find a block: ``table-NAME`` or ``figure-NAME``, the name of
    a section or fold; empty for other blocks."""
    from dualml.report.figure import Figure

    if isinstance(block, Table | Figure):
        return f"{type(block).__name__.lower()}-{block.name}"
    return block.name if isinstance(block, SectionBlock | Fold) else ""
