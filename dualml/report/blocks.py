"""A page as a tree of blocks. Texts are in the page's language; nothing here knows a format.

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
    """A paragraph; ``small`` for what explains rather than tells."""

    text: str
    small: bool = False


@dataclass(frozen=True)
class Text:
    """What a person has written in Markdown (CommonMark with tables; HTML in it is shown, not
    obeyed)."""

    markdown: str


@dataclass(frozen=True)
class Bullets:
    """Sentences in a list."""

    items: Sequence[Item]


@dataclass(frozen=True)
class Item:
    """``warning`` marks what limits what can be said. ``target`` is the anchor of its evidence on
    the page (``table-speed``), shown as a link called ``link``; ``key`` names the sentence."""

    text: str
    warning: bool = False
    target: str = ""
    key: str = ""
    link: str = ""


@dataclass(frozen=True)
class Cell:
    """``note`` stands beneath, small; the number behind the text need not be kept. ``shade``, above
    0 to 1, is how dark a terminal makes the ground. ``href`` is a page beside this one."""

    text: str
    tone: Tone = ""
    note: str = ""
    shade: float = 0.0
    href: str = ""


#: The cells of a row; a text alone is a cell.
Cells: TypeAlias = list[Cell | str]


@dataclass(frozen=True)
class Column:
    """``key`` names the column in data; ``show`` says how its cells are set; ``measure`` names the
    unit, the same in all languages. An ``optional`` one is left out of a terminal that is too
    narrow for the words of all."""

    key: str
    label: str
    unit: str = ""
    show: Show = "text"
    measure: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Table:
    """The first cell of every row is its heading; a text alone is a cell. The anchor is
    ``table-NAME``."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]

    @property
    def cells(self) -> Iterator[list[Cell]]:
        """Rows in which every text is a cell."""
        for row in self.rows:
            yield [Cell(cell) if isinstance(cell, str) else cell for cell in row]


@dataclass(frozen=True)
class Code:
    """Python source; ``caption`` names the file, ``who`` the framework it is of."""

    text: str
    caption: str = ""
    who: str = ""


@dataclass(frozen=True)
class Formula:
    """LaTeX, displayed."""

    latex: str


@dataclass(frozen=True)
class Verdict:
    """The page's answer in one sentence."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Notice:
    """What a reader must know before the numbers."""

    text: str


@dataclass(frozen=True)
class Card:
    """A small titled box; cards that follow one another stand side by side."""

    title: str
    blocks: Sequence[Block]
    code: bool = False


@dataclass(frozen=True)
class Row:
    """Blocks side by side where there is room: listings of the frameworks, small figures."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Fold:
    """Blocks behind a summary line; open on paper and in Markdown. ``name``: its anchor."""

    summary: str
    blocks: Sequence[Block]
    name: str = ""


@dataclass(frozen=True)
class Section:
    """A heading with its anchor and what follows it; nested sections have smaller headings."""

    name: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """``title`` is the document's heading; ``lang`` its language; ``question`` what it answers."""

    lang: str
    title: str
    question: str
    blocks: Sequence[Block]
    footer: str = ""


_Leaf: TypeAlias = "Prose | Text | Bullets | Table | Figure | Code | Formula | Verdict | Notice"
Block: TypeAlias = "_Leaf | Card | Row | Fold | Section"


def walk(blocks: Sequence[Block]) -> Iterator[Block]:
    """Every block of a tree, parents before children, in reading order."""
    for block in blocks:
        yield block
        if isinstance(block, Card | Row | Fold | Section):
            yield from walk(block.blocks)


def anchor(block: Block) -> str:
    """The name under which links find a block; empty for those without one."""
    from dualml.report.figure import Figure

    if isinstance(block, Table | Figure):
        return f"{type(block).__name__.lower()}-{block.name}"
    return block.name if isinstance(block, Section | Fold) else ""
