"""Render tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from dualml.common.errors import escape_unprintable
from dualml.report.blocks import Cell, Column, Table, Tone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

STYLES: dict[Tone, str] = {"good": "green", "near": "cyan", "bad": "red", "muted": "yellow"}
Parts = Callable[[str], Sequence[str]]
#: Minimum width of a column in characters, while the first column can still shrink.
MIN_COLUMN_CHARS = 4
#: A word, which is kept on one line if it fits.
WORD = re.compile(r"[!-~\u00a1-\u2e7f]+")
#: A piece of a word, up to and including a joint.
WORD_PIECE = re.compile(r"[^_(,=./-]*[_(,=./-]*")
#: Colour of the darkest background.
RGB = (30, 100, 180)


def show(table: Table, console: Console | None = None) -> None:
    """Print a table below its caption, on ``console`` or else on the standard output; nothing in it
    is markup but code in backquotes."""
    from rich.console import Console as Terminal

    console = console or Terminal(highlight=False)
    if table.caption:
        console.print(escape_unprintable(table.caption), style="bold", markup=False)
    console.print(render(table, console.width))


def render(table: Table, width: int) -> Grid:
    """Return a table as a grid of rich that fits into ``width`` characters: cells are folded at
    spaces; if their words do not fit, optional columns are left out, the last first, then long
    names are folded at their joints. A table without labels has no head."""
    from rich.table import Table as Grid

    rows = [list(map(_cell, row)) for row in table.cells]
    columns = [
        _Column(column, _head(column), [row[k] for row in rows])
        for k, column in enumerate(table.columns)
    ]
    spare = [k for k, column in enumerate(table.columns) if column.optional]
    while spare and sum(max(c.words) + 1 for c in columns) > width:
        del columns[spare.pop()]
    gap = 2 if sum(max(c.lines) + 2 for c in columns) <= width else 1
    headed = any(column.label for column in table.columns)
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=headed)
    widths = fit_widths(columns, width - gap * len(columns))
    for column, n in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.column.show == "number" else "left"
        grid.add_column(_break_words(column.head, n), justify=justify, overflow="fold", width=n)
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*map(_break_words, row, widths))
    return grid


@dataclass(frozen=True)
class _Column:
    """A column with the maximum widths of its lines, words and word pieces, each for cells and
    head."""

    column: Column
    head: Text
    cells: Sequence[Text]

    @cached_property
    def lines(self) -> tuple[int, int]:
        """Maximum width of a line in the cells and in the head."""
        return self._max_widths(str.splitlines, str.splitlines)

    @cached_property
    def words(self) -> tuple[int, int]:
        """Maximum width of a word in the cells and in the head. Chinese breaks anywhere, but not in
        a head."""
        return self._max_widths(WORD.findall, str.split)

    @cached_property
    def pieces(self) -> tuple[int, int]:
        """Maximum width of a part of a word, split at joints, in the cells and in the head."""

        def pieces(words: Sequence[str]) -> list[str]:
            return [piece for word in words for piece in WORD_PIECE.findall(word)]

        return self._max_widths(
            lambda text: pieces(WORD.findall(text)), lambda text: pieces(text.split())
        )

    def _max_widths(self, of_cell: Parts, of_head: Parts) -> tuple[int, int]:
        """Return the maximum width of the parts of all cells, and of the parts of the head."""
        from rich.cells import cell_len

        cells = (cell_len(part) for cell in self.cells for part in of_cell(cell.plain))
        heads = map(cell_len, of_head(self.head.plain))
        some = 2 if any(cell.plain for cell in self.cells) else 0
        return max(cells, default=some), max(heads, default=0)


def fit_widths(columns: Sequence[_Column], room: int) -> list[int]:
    """Return the widths of the columns, at least 1 each, within ``room`` characters in total.
    Labels wider than their cells shrink first, then the widest columns as long as no word breaks,
    then names at their joints, then all; the first column, which names the rows, shrinks last."""
    fit = [max(column.lines) for column in columns]
    for floors in (
        [max(c.lines[0], c.words[1]) for c in columns],
        [max(c.words if k else c.lines) for k, c in enumerate(columns)],
        [max(c.words) for c in columns],
        [max(c.words[0], c.pieces[1]) for c in columns],
        [max(c.pieces if k else c.words) for k, c in enumerate(columns)],
        [MIN_COLUMN_CHARS if k else max(c.words) for k, c in enumerate(columns)],
        [1] * len(columns),
    ):
        while sum(fit) > room and (wide := [k for k, n in enumerate(fit) if n > floors[k]]):
            fit[max(wide, key=lambda k: fit[k])] -= 1
    return fit


def _break_words(text: Text, width: int) -> Text:
    """Break words that are wider than a column after the last joint that fits in each line."""
    breaks = list[int]()
    for word in WORD.finditer(text.plain):
        begin = word.start()
        for piece in WORD_PIECE.finditer(text.plain, *word.span()) if len(word[0]) > width else ():
            if piece.end() - begin > width and piece.start() > begin:
                breaks.append(begin := piece.start())
    return text.blank_copy("\n").join(text.divide(breaks)) if breaks else text


def _head(column: Column) -> Text:
    """Return the head of a column; each part of a label with dots is on its own line, and the unit
    below."""
    from rich.text import Text

    head = Text(escape_unprintable(column.label, "\n").replace(".", ".\n"), "bold")
    return head.append(f"\n{column.unit}", "not bold dim") if column.unit else head


def _cell(cell: Cell) -> Text:
    """Return a table cell as styled text, with its note on a line of its own."""
    shade = ",".join(f"{round(cell.shade * full)}" for full in RGB)
    text = render_inline(
        cell.text, f"white on rgb({shade})" if cell.shade else STYLES.get(cell.tone, "")
    )
    return text.append("\n").append(render_inline(cell.note, "dim")) if cell.note else text


def render_inline(text: str, style: str = "") -> Text:
    """Return text with the parts in backquotes coloured, without the backquotes. Control characters
    are escaped, because names and reasons come from run folders of others."""
    from rich.text import Text

    line = Text(style=style)
    for number, part in enumerate(escape_unprintable(text, "\n").split("`")):
        line.append(part, "cyan" if number % 2 else None)
    return line
