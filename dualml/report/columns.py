"""Table columns defined by their keys, and the cells that many tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dualml.common.words import Messages, numbers
from dualml.report.blocks import Cell, Column, Show, Table, Tone

if TYPE_CHECKING:
    from dualml.experiment.store.run import TrialComparison
    from dualml.report.confidence import MeanInterval

#: A row: texts are kept; numbers and means are formatted by the unit of their column, None is a
#: dash.
Row: TypeAlias = Sequence[Any]
R = TypeVar("R")
#: One column, or several that one function fills.
Specs: TypeAlias = "str | Column | tuple[str | Column, ...]"
#: The columns of a table in order → the function that reads their values from a row's record. A
#: column whose spec ends in ``?`` is left out if no row has a value (None, False, empty or a dash).
Columns: TypeAlias = Mapping[Specs, Callable[[R], Any]]
#: The first columns of records of an arm on a backend.
PLACE: Columns[Any] = {("`arm`", "backend"): attrgetter("arm", "backend")}

STATUS_TONES: dict[str, Tone] = {
    "ok": "good",
    "failed": "bad",
    "unsupported": "muted",
    "interrupted": "near",
}
VERDICT_TONES: dict[str, Tone] = {
    "equal": "good",
    "statistically equal": "near",
    "different": "bad",
    "not comparable": "muted",
}
#: A sign beside the colour, for colour-blind readers and for print.
SIGNS: dict[Tone, str] = {"good": "✓", "near": "≈", "bad": "≠", "muted": "–", "": ""}


def percent(x: Any) -> str:
    """Return a fraction as a percentage without the sign, for columns whose head has it: 0.5 →
    ``50.0``; a dash for None."""
    return numbers.percent(x).removesuffix(" %")


def _scaled_formatter(factor: float) -> Callable[[Any], str]:
    """Return a formatter that multiplies a quantity by ``factor`` first, to convert its unit."""
    return lambda x: numbers.quantity(factor * x if numbers.is_finite_number(x) else None)


#: Unit → formatter of a column's numbers; other units use `numbers.quantity`. Times are in
#: seconds; perplexities and losses other than cross-entropy have the unit 1.
UNITS: Mapping[str, Callable[[Any], str]] = {
    "percent": percent,
    "points": numbers.points,
    "relative": numbers.factor,
    "milliseconds": numbers.ms,
    "microseconds": _scaled_formatter(1e6),
    "ns_per_byte": _scaled_formatter(1e9),
    "gb_per_second": _scaled_formatter(1e-9),
    "nat": numbers.loss,
    "1": numbers.loss,
    "bytes": numbers.nbytes,
    "bytes_update": numbers.nbytes,
}


def table(
    words: Messages,
    name: str,
    specs: Iterable[str | Column],
    rows: Iterable[Row],
    caption: str = "",
    **values: Any,
) -> Iterator[Table]:
    """Yield one table with these columns (`columns`) and rows, and the caption ``table.NAME`` or,
    if a ``caption`` is given, the message ``table.CAPTION``, formatted with ``values``; nothing
    without rows. A row needs a value for each column."""
    heads = columns(words, *specs)
    lines = [[_cell(*pair) for pair in zip(row, heads, strict=True)] for row in rows]
    if lines:
        yield Table(
            name, words.get_formatted(f"table.{caption or name}", name, **values), heads, lines
        )


def tabulate(
    words: Messages,
    name: str,
    records: Iterable[R],
    read: Columns[R],
    caption: str = "",
    **values: Any,
) -> Iterator[Table]:
    """Yield the `table` with a row per record, whose cells the functions of ``read`` (`Columns`)
    return; nothing without records. ``caption`` is the key of a message, as for `table`."""
    if every := list(records):
        shown = _read_columns(every, read)
        rows = zip(*shown.values(), strict=True)
        yield from table(words, name, shown, rows, caption, **values)


def make_table(
    words: Messages,
    name: str,
    records: Iterable[R],
    read: Columns[R],
    caption: str = "",
    labels: str = "column.{}",
) -> Table:
    """Return a table with a row per record, whose cells the functions of ``read`` (`Columns`)
    return; also without records.

    Args:
        words: the messages.
        name: name of the table, the end of its anchor.
        records: any objects, one for each row.
        read: the columns, and how a record's values are read.
        caption: text of the caption.
        labels: message of a column's label, with ``{}`` in the place of the column's key.
    """
    shown = _read_columns(list(records), read)
    heads = columns(words, *shown, labels=labels)
    rows = zip(*shown.values(), strict=True)
    return Table(name, caption, heads, [[*map(_cell, row, heads)] for row in rows])


def _read_columns(records: Sequence[R], read: Columns[R]) -> dict[str | Column, Sequence[Any]]:
    """Return column → its values, one per record; without the optional columns that no record
    has."""
    shown: dict[str | Column, Sequence[Any]] = {}
    for specs, value in read.items():
        several = isinstance(specs, tuple)
        names = specs if isinstance(specs, tuple) else (specs,)
        cells = [value(record) if several else (value(record),) for record in records]
        by_column = zip(*cells, strict=True) if cells else ((),) * len(names)
        for spec, column in zip(names, by_column, strict=True):
            if not (isinstance(spec, str) and spec.endswith("?")):
                shown[spec] = column
            elif not all(cell is False or cell in (None, "", numbers.NO_VALUE) for cell in column):
                shown[spec.removesuffix("?")] = column
    return shown


def _cell(value: Cell | MeanInterval | str | float | None, head: Column) -> Cell | str:
    """Format one value for its column by the column's unit; cells and texts are returned unchanged,
    None becomes a dash."""
    if isinstance(value, Cell | str):
        return value
    text = UNITS.get(head.measure, numbers.quantity)
    return text(value) if value is None or isinstance(value, int | float) else value.cell(text)


def columns(words: Messages, *specs: str | Column, labels: str = "column.{}") -> list[Column]:
    """Return columns from short specs: ```"`arm`"``` is a column of code, ``"arm"`` of text,
    ``"seed:"`` of numbers, ``"train_s:seconds"`` of numbers with the unit ``unit.seconds``; their
    labels are the messages ``labels``. A `Column` is returned unchanged."""
    heads = []
    for spec in specs:
        if isinstance(spec, Column):
            heads.append(spec)
            continue
        key, colon, unit = spec.strip("`").partition(":")
        show: Show = "number" if colon else "code" if spec.startswith("`") else "text"
        label = words.get(labels.format(key), key)
        heads.append(Column(key, label, words.get(f"unit.{unit}", unit), show, unit))
    return heads


def number(words: Messages, key: str, label: str, unit: str) -> Column:
    """Return a column of numbers with an explicit label, e.g. one made of names; its unit is the
    message ``unit.UNIT``."""
    return Column(key, label, words(f"unit.{unit}"), "number", unit)


def highlight_best(text: str, is_best: bool) -> Cell:
    """Return a cell with the text, green if ``is_best``."""
    return Cell(text, "good" if is_best else "")


def status_cell(trial_status: str, words: Messages) -> Cell:
    """Return the cell of a trial's status in the page's language, with its colour; an unknown
    status is shown as it is."""
    return Cell(
        words.get(f"status.{trial_status}", trial_status), STATUS_TONES.get(trial_status, "muted")
    )


def verdict_cell(verdict_name: str, words: Messages) -> Cell:
    """Return the cell of a verdict's name, with its sign."""
    tone = VERDICT_TONES.get(verdict_name, "muted")
    text = words.get(f"verdict.{verdict_name.replace(' ', '_')}", verdict_name)
    return Cell(f"{SIGNS[tone]} {text}", tone)


def verdict(c: TrialComparison, words: Messages, *, why: bool = True) -> Cell:
    """Return the cell of a comparison: the verdict with its sign, and below it the reason, unless
    ``why`` is False."""
    note = words.get(f"reason.{c.reason}", c.reason) if why else ""
    return replace(verdict_cell(c.verdict, words), note=note)
