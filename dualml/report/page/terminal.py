"""Tables of a page for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dualml.report.blocks import Cell, Column, Table, Tone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

STYLES: dict[Tone, str] = {"good": "green", "near": "cyan", "bad": "red", "muted": "yellow"}
#: Characters that a column keeps as long as the first one can give way.
LEAST = 4
#: Of the darkest ground.
RGB = (30, 100, 180)


def show(table: Table, console: Console | None = None) -> None:
    """Print it under its caption; nothing in it is markup but code in backquotes."""
    from rich.console import Console as Terminal

    console = console or Terminal(highlight=False)
    if table.caption:
        console.print(table.caption, style="bold", markup=False)
    console.print(render(table, console.width))


def render(table: Table, width: int) -> Grid:
    """The table for a console of rich; cells are folded where the whole is wider than that. Without
    labels it has no head."""
    from rich.table import Table as Grid

    rows = [list(map(_cell, row)) for row in table.cells]
    heads = list(map(_head, table.columns))
    cells = [max((_widest(row[k]) for row in rows), default=0) for k in range(len(heads))]
    whole = [max(n, _widest(head)) for n, head in zip(cells, heads, strict=True)]
    gap = 2 if sum(whole) + 2 * len(whole) <= width else 1
    widths = fitted(whole, cells, width - gap * len(whole))
    headed = any(column.label for column in table.columns)
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=headed)
    for column, head, n in zip(table.columns, heads, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.show == "number" else "left"
        grid.add_column(head, justify=justify, overflow="fold", width=n)
    for row in rows:
        grid.add_row(*row)
    return grid


def fitted(whole: Sequence[int], cells: Sequence[int], room: int) -> list[int]:
    """Labels that are wider than their ``cells`` give way first, then the widest columns, and the
    first one, which names the rows, last."""
    fit = list(whole)
    while sum(fit) > room and max(fit) > 1:
        labels = [k for k, n in enumerate(fit) if n > max(cells[k], LEAST)]
        others = [k for k, n in enumerate(fit) if n > LEAST and k]
        widest = max(labels or others or range(len(fit)), key=lambda k: fit[k])
        fit[widest] -= 1
    return fit


def _widest(text: Text) -> int:
    return max((line.cell_len for line in text.split()), default=0)


def _head(column: Column) -> Text:
    """The label; of a dotted key each part in a line of its own."""
    from rich.text import Text

    head = Text(column.label.replace(".", ".\n"), "bold")
    return head.append(f"\n{column.unit}", "not bold dim") if column.unit else head


def _cell(cell: Cell) -> Text:
    shade = ",".join(f"{round(cell.shade * full)}" for full in RGB)
    text = inline(cell.text, f"white on rgb({shade})" if cell.shade else STYLES.get(cell.tone, ""))
    return text.append("\n").append(inline(cell.note, "dim")) if cell.note else text


def inline(text: str, style: str = "") -> Text:
    """What stands in backquotes in colour, without them."""
    from rich.text import Text

    line = Text(style=style)
    for number, part in enumerate(text.split("`")):
        line.append(part, "cyan" if number % 2 else None)
    return line
