"""A pipeline schedule as data: which rank runs which action in which tick.

Stages are numbered 0 … S−1 in model order, each owned by a rank; micro-batches are 0 … m−1. An
action is the forward or the backward pass of one micro-batch through one stage, written as in
PyTorch: ``2F0`` is stage 2, forward, micro-batch 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from dualml.common.errors import UserError
from dualml.common.json_types import JsonMapping, JsonObject

Kind = Literal["F", "B"]
#: Text forms of an idle tick.
IDLE = ("", ".", "-")


@dataclass(frozen=True, order=True)
class Action:
    """The forward (``kind`` ``F``) or backward (``B``) pass of micro-batch ``micro`` through
    ``stage``."""

    stage: int
    kind: Kind
    micro: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Parse an action from text such as ``2F0``.

        Raises:
            UserError: the text is not an action.
        """
        match = re.fullmatch(r"(\d{1,9})([FB])(\d{1,9})", text.strip(), flags=re.ASCII)
        if not match:
            raise UserError(
                f"{text[:40]!r} is no action: write stage, F or B, micro-batch, as in 2F0, or . "
                "for idle"
            )
        return cls(int(match[1]), "F" if match[2] == "F" else "B", int(match[3]))


def forward(stage: int, micro: int) -> Action:
    """Return the forward action of a micro-batch in a stage."""
    return Action(stage, "F", micro)


def backward(stage: int, micro: int) -> Action:
    """Return the backward action of a micro-batch in a stage."""
    return Action(stage, "B", micro)


def live(program: Iterable[Action]) -> int:
    """Return the largest number of activations (forward done, backward not) held at once in this
    order."""
    return max(accumulate((1 if a.kind == "F" else -1 for a in program), initial=0))


@dataclass(frozen=True)
class Grid:
    """A schedule as a table of rank × tick.

    Attributes:
        rows: for every rank its action in each tick, None where it idles; all rows have equal
            length.
        owners: stage → its rank.
        micro_batches: number of micro-batches, m.

    Raises:
        UserError: rows of different length.

    Example:
        >>> from dualml.parallel.split.schedules import build
        >>> print(build("gpipe", (0, 1), 2))
        rank 0 | 0F0 0F1  .   .  0B0 0B1
        rank 1 |  .  1F0 1F1 1B0 1B1  .
    """

    rows: tuple[tuple[Action | None, ...], ...]
    owners: tuple[int, ...]
    micro_batches: int

    def __post_init__(self) -> None:
        lengths = [len(row) for row in self.rows]
        if len(set(lengths)) > 1:
            raise UserError(f"the rows of a grid are equally long; received {lengths}")

    @property
    def ranks(self) -> int:
        """Number of ranks (rows)."""
        return len(self.rows)

    @property
    def stages(self) -> int:
        """Number of stages of the model."""
        return len(self.owners)

    @property
    def ticks(self) -> int:
        """Length in ticks; a pass takes one tick."""
        return len(self.rows[0]) if self.rows else 0

    def program(self, rank: int) -> list[Action]:
        """Return the actions of a rank, in order."""
        return [action for action in self.rows[rank] if action is not None]

    def programs(self) -> list[list[Action]]:
        """Return the actions of every rank, in order."""
        return [self.program(rank) for rank in range(self.ranks)]

    def live(self, rank: int) -> int:
        """Return the largest number of activations that a rank holds at once, over all its
        stages."""
        return live(self.program(rank))

    def idle(self) -> float:
        """Return the share (0 … 1) of all cells (rank × tick) that are idle; 0 for an empty
        grid."""
        cells = self.ranks * self.ticks
        return sum(cell is None for row in self.rows for cell in row) / cells if cells else 0.0

    def cells(self) -> list[list[str]]:
        """Return the rows as text, with ``.`` where a rank idles."""
        return [["." if cell is None else str(cell) for cell in row] for row in self.rows]

    def __str__(self) -> str:
        """Return one line per rank and one column per tick; `read` parses it."""
        cells = self.cells()
        wide = max((len(cell) for row in cells for cell in row), default=1)
        digits = len(str(max(self.ranks - 1, 0)))
        return "\n".join(
            f"rank {rank:>{digits}} | {' '.join(cell.center(wide) for cell in row)}".rstrip()
            for rank, row in enumerate(cells)
        )

    @classmethod
    def parse(
        cls,
        rows: Sequence[Sequence[str | None]],
        owners: Sequence[int] | None = None,
        micro_batches: int | None = None,
    ) -> Grid:
        """Make a grid from its cells; rows that end early idle from there on.

        Args:
            rows: for every rank, cells such as ``2F0``, or ``.`` (also ``-``, an empty string or
                None) where it idles.
            owners: stage → rank; by default the rank in whose row a stage comes first.
            micro_batches: m; by default one more than the largest micro-batch that occurs.

        Raises:
            UserError: a cell that is not an action, with its rank and tick, or a stage that occurs
                nowhere.
        """
        ticks = max((len(row) for row in rows), default=0)
        read = []
        for rank, row in enumerate(rows):
            cells = [_cell(text, rank, tick) for tick, text in enumerate(row)]
            read.append((*cells, *[None] * (ticks - len(row))))
        named = [(a, rank) for rank, row in enumerate(read) for a in row if a is not None]
        if owners is None:
            owners = _first_owners(named)
        if micro_batches is None:
            micro_batches = 1 + max((a.micro for a, _ in named), default=-1)
        return cls(tuple(read), tuple(owners), micro_batches)

    @classmethod
    def read(cls, text: str) -> Grid:
        """Parse the text form that `str` writes: one line per rank, cells separated by blanks or
        commas, ``.`` where a rank idles. ``rank 0 |`` at the start of a line is optional, ``#``
        starts a comment.

        Raises:
            UserError: see `parse`.
        """
        rows = []
        for line in text.splitlines():
            line = re.sub(r"^\s*rank\s*\d+\s*[|:]", "", line.partition("#")[0]).strip()
            if line:
                rows.append([c.strip() for c in line.split(",")] if "," in line else line.split())
        return cls.parse(rows)

    def describe(self) -> JsonObject:
        """Return the grid as JSON-compatible values; `restore` makes a grid from them."""
        rows = [[None if cell is None else str(cell) for cell in row] for row in self.rows]
        return {"owners": list(self.owners), "micro_batches": self.micro_batches, "rows": rows}

    @classmethod
    def restore(cls, value: JsonMapping) -> Grid:
        """Make a grid from the values that `describe` returns; ``owners`` and ``micro_batches`` are
        optional.

        Raises:
            UserError: no rows of cells, owners that are not ranks, ``micro_batches`` that is not a
                whole number, a cell that is not an action, or (without owners) a stage that occurs
                nowhere.
        """
        rows, owners, m = value.get("rows"), value.get("owners"), value.get("micro_batches")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise UserError('a grid has rows of cells, as in rows = [["0F0", "0B0"]]')
        if owners is not None and not (isinstance(owners, list) and all(map(_is_count, owners))):
            raise UserError(f"owners are the ranks of the stages, as in [0, 1]; received {owners}")
        if m is not None and not _is_count(m):
            raise UserError(f"micro_batches is a whole number from 1; received {m}")
        return cls.parse(rows, owners, m)


def _is_count(value: Any) -> bool:
    """Return whether ``value`` is an integer of at least 0, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _cell(text: str | None, rank: int, tick: int) -> Action | None:
    """Parse a cell; None if it is idle. Raise `UserError` with rank and tick if it is no action."""
    if text is None or (isinstance(text, str) and text.strip() in IDLE):
        return None
    try:
        return Action.parse(str(text))
    except UserError as error:
        raise UserError(f"rank {rank}, tick {tick}: {error}") from None


def _first_owners(named: Sequence[tuple[Action, int]]) -> tuple[int, ...]:
    """Return stage → the rank in whose row the stage comes first; raise `UserError` if a stage
    below the highest one is in no row."""
    owners: dict[int, int] = {}
    for action, rank in named:
        owners.setdefault(action.stage, rank)
    stages = 1 + max(owners, default=-1)
    missing = next((stage for stage in range(stages) if stage not in owners), None)
    if missing is not None:
        raise UserError(f"stage {missing} is in no row; the grid has stages up to {stages - 1}")
    return tuple(owners[stage] for stage in range(stages))
