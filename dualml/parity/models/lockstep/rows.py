"""Rows of a comparison block by block: what was compared, and how far the two sides are apart."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from numpy.typing import NDArray

from dualml.parity.models.gap import gap, has_nan, largest_differences
from dualml.parity.models.pattern import MIN_ELEMENTS, relative_scale
from dualml.parity.places import FLOOR

#: Number of rows of which the elements that differ most are kept.
MAX_SHOWN_ROWS = 100
#: Ratio to the known rounding above which they are.
SHOWN_RATIO = 3.0
#: Roles of arrays of a parameter that may be a piece of a fused one, ``NAME[0]``.
FUSED_ROLES = ("parameter gradient", "update", "state")


@dataclass(frozen=True)
class BlockRow:
    """Two arrays that were compared.

    Attributes:
        role: ``output``, ``inner``, ``input``, ``loss``, ``output gradient``, ``input gradient``,
            ``parameter gradient``, ``outside gradient`` (of a parameter that stays in memory),
            ``update`` (new weights), ``state`` (of an optimizer) or ``parameter``.
        block: the block on the first side; empty outside of blocks.
        name, other: names of the arrays on the first and the second side.
        distance: relative distance, see `dualml.parity.models.gap.gap`.
        kind: ``value``, ``shape``, ``nan`` (on one side) or ``both_nan``; for a parameter ``alone``
            (only one side has it) or ``trained`` (only one side trains it).
        width: rounding envelope on the second side: the largest distance that moved weights make.
        width_key: key of the first side's envelope among its ``widths``.
        scale: c of the fit b ≈ (1 + c) · a; 0 for arrays with few elements.
        shapes: shapes of both arrays.
        elements: the elements that differ most; empty if the distance is small, or many rows have
            some.
        side: index of the side that has the NaN, alone has the parameter, or does not train it.
    """

    role: str
    block: str
    name: str
    other: str
    distance: float
    kind: str
    width: float
    width_key: str
    scale: float
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    elements: list[dict[str, Any]]
    side: int


class RowWriter:
    """Compares pairs of arrays and keeps a row for each in ``rows``.

    Args:
        sides: names of the two sides.
        unit: one unit in the last place, relative.
    """

    def __init__(self, sides: tuple[str, str], unit: float = FLOOR) -> None:
        self.sides, self.unit = sides, unit
        self.rows: list[BlockRow] = []
        self.shown = 0

    def add(
        self,
        role: str,
        block: str,
        place: tuple[str, str, float],
        other: str,
        a: NDArray[Any],
        b: NDArray[Any],
    ) -> None:
        """Compare two arrays and append their row.

        Args:
            role, block: as in `BlockRow`.
            place: name of the record, name of the first side's array in it, rounding envelope on
                the second side.
            other: name of the second side's array.
            a, b: arrays of the first and the second side.
        """
        key, name, width = place
        far, kind, side = gap(a, b), "value", 0
        if a.shape != b.shape:
            kind = "shape"
        elif not isfinite(far):
            nans = has_nan(a), has_nan(b)
            kind, side = ("value", "nan", "both_nan")[sum(nans)], int(nans[1])
        elements = []
        if far > SHOWN_RATIO * max(width, self.unit) and self.shown < MAX_SHOWN_ROWS:
            elements, self.shown = largest_differences(a, b, self.sides), self.shown + 1
        fits = role == "inner" and kind == "value" and a.size >= MIN_ELEMENTS
        self.rows.append(
            BlockRow(
                role,
                block,
                name,
                other,
                far,
                kind,
                width,
                f"{key}/{name.partition('[')[0] if role in FUSED_ROLES else name}",
                relative_scale(a, b) if fits else 0.0,
                (a.shape, b.shape),
                elements,
                side,
            )
        )

    def add_parameter(self, block: str, name: str, other: str, kind: str, side: int) -> None:
        """Append a row for a trained parameter that one side alone has, or alone trains, at
        infinite distance.

        Args:
            kind: ``alone`` or ``trained``.
            side: index of the side that alone has it, or that does not train it.
        """
        self.rows.append(
            BlockRow(
                *("parameter", block, f"parameter/{name}", other, float("inf"), kind, 0.0, ""),
                *(0.0, ((), ()), [], side),
            )
        )

    def describe(self) -> list[dict[str, Any]]:
        """Return the rows as a list of dicts for JSON, which `read_row` reads."""
        return [asdict(row) for row in self.rows]


def as_number(value: Any) -> float:
    """Return a number read from JSON as a float; None, which JSON has for infinity, as infinity."""
    return float("inf") if value is None else float(value)


def read_row(values: dict[str, Any]) -> BlockRow:
    """Return a row that `RowWriter.describe` described."""
    shapes = tuple(tuple(shape) for shape in values["shapes"])
    return BlockRow(
        **{
            **values,
            "distance": as_number(values["distance"]),
            "width": as_number(values["width"]),
            "shapes": shapes,
        }
    )
