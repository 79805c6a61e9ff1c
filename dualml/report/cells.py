"""What tables are made of: cells with a tone and a note, columns with a unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dualml.report import numbers
from dualml.report.model import Comparison, Trial
from dualml.report.words import Words


@dataclass(frozen=True)
class Cell:
    """``kind`` is ``text``, ``number`` or ``code``; ``note`` stands beneath, small."""

    text: str
    kind: str = "text"
    tone: str = ""
    note: str = ""


@dataclass(frozen=True)
class Head:
    label: str
    unit: str = ""
    number: bool = False


@dataclass(frozen=True)
class Table:
    """The first cell of every row is its heading."""

    name: str
    caption: str
    head: Sequence[Head]
    rows: Sequence[Sequence[Cell]]


STATUS_TONES = {"ok": "good", "failed": "bad", "unsupported": "muted", "interrupted": "near"}
VERDICT_TONES = {
    "equal": "good",
    "statistically equal": "near",
    "different": "bad",
    "not comparable": "muted",
}
#: A sign beside the colour, for those who do not see it and for print.
SIGNS = {"good": "✓", "near": "≈", "bad": "≠", "muted": "–"}


def number(text: str) -> Cell:
    return Cell(text, "number")


def status(trial: Trial, words: Words) -> Cell:
    text = words.either(f"status.{trial.status}", trial.status)
    return Cell(text, tone=STATUS_TONES.get(trial.status, "muted"))


def verdict(c: Comparison, words: Words) -> Cell:
    tone = VERDICT_TONES.get(c.verdict, "muted")
    text = words.either(f"verdict.{c.verdict.replace(' ', '_')}", c.verdict)
    why = words.either(f"reason.{c.reason}", c.reason)
    return Cell(f"{SIGNS[tone]} {text}", tone=tone, note=why)


def heads(words: Words, *columns: str) -> list[Head]:
    """``"train_s:seconds"`` → the column's label with its unit; a column with a unit is numeric."""
    made = []
    for column in columns:
        key, _, unit = column.partition(":")
        known = words.either(f"unit.{unit}", unit)
        made.append(Head(words(f"column.{key}"), known, bool(unit)))
    return made


def percent(x: Any) -> str:
    """Without its sign, for columns that have it in their head."""
    return numbers.percent(x).removesuffix(" %")
