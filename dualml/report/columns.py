"""Columns of tables by their keys, and the cells that many tables have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from dualml.report.blocks import Cell, Column, Show, Table, Tone
from dualml.store.run import Comparison, Trial
from dualml.words import Words, numbers

Line: TypeAlias = Sequence[Cell | str]

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
#: A sign beside the colour, for those who do not see it and for print.
SIGNS: dict[Tone, str] = {"good": "✓", "near": "≈", "bad": "≠", "muted": "–", "": ""}


def table(
    words: Words, name: str, specs: Iterable[str | Column], rows: Iterable[Line], **values: Any
) -> Iterator[Table]:
    """With the caption ``table.NAME``; none without rows."""
    lines = list(rows)
    if lines:
        yield Table(name, words(f"table.{name}", **values), columns(words, *specs), lines)


def columns(words: Words, *specs: str | Column) -> list[Column]:
    """```"`arm`"``` is a column of code, ``"seed:"`` of numbers, ``"train_s:seconds"`` of numbers
    with the unit ``unit.seconds``; labels are ``column.KEY``."""
    made = []
    for spec in specs:
        if isinstance(spec, Column):
            made.append(spec)
            continue
        key, colon, unit = spec.strip("`").partition(":")
        show: Show = "number" if colon else "code" if spec.startswith("`") else "text"
        made.append(Column(key, words(f"column.{key}"), words.either(f"unit.{unit}", unit), show))
    return made


def number(words: Words, key: str, label: str, unit: str) -> Column:
    """A column of numbers whose label is made of names."""
    return Column(key, label, words(f"unit.{unit}"), "number")


def best(text: str, is_best: bool) -> Cell:
    """In green where it is the best."""
    return Cell(text, "good" if is_best else "")


def status(trial: Trial, words: Words) -> Cell:
    text = words.either(f"status.{trial.status}", trial.status)
    return Cell(text, STATUS_TONES.get(trial.status, "muted"))


def verdict(c: Comparison, words: Words, *, why: bool = True) -> Cell:
    """The verdict with its sign, beneath it the reason."""
    tone = VERDICT_TONES.get(c.verdict, "muted")
    text = words.either(f"verdict.{c.verdict.replace(' ', '_')}", c.verdict)
    note = words.either(f"reason.{c.reason}", c.reason) if why else ""
    return Cell(f"{SIGNS[tone]} {text}", tone, note)


def percent(x: Any) -> str:
    """Without its sign, for columns that have it in their head."""
    return numbers.percent(x).removesuffix(" %")
