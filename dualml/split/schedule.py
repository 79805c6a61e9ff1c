"""A pipeline schedule as data: which rank does what in which tick.

Stages 0 … S−1 in the order of the model, each owned by a rank; micro-batches 0 … m−1. An action is
the forward or the backward pass of one micro-batch through one stage, written as PyTorch does:
``2F0`` is stage 2, forward, micro-batch 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from dualml.errors import UserError

Kind = Literal["F", "B"]
#: How an idle tick may be written.
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
        """``2F0``.

        Raises:
            UserError: anything else.
        """
        match = re.fullmatch(r"(\d{1,9})([FB])(\d{1,9})", text.strip(), flags=re.ASCII)
        if not match:
            raise UserError(
                f"{text[:40]!r} is no action: write stage, F or B, micro-batch, as in 2F0, or . "
                "for idle"
            )
        return cls(int(match[1]), "F" if match[2] == "F" else "B", int(match[3]))


def forward(stage: int, micro: int) -> Action:
    return Action(stage, "F", micro)


def backward(stage: int, micro: int) -> Action:
    return Action(stage, "B", micro)


def live(program: Iterable[Action]) -> int:
    """The most activations (forward done, backward not) that are held at once, in this order."""
    return max(accumulate((1 if a.kind == "F" else -1 for a in program), initial=0))


@dataclass(frozen=True)
class Grid:
    """Rank × tick.

    Attributes:
        rows: for every rank what it does in each tick, None where it idles; all equally long.
        owners: stage → its rank.
        micro_batches: m.

    Raises:
        UserError: rows of different length.

    Example:
        >>> from dualml.split.schedules import build
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
        """How many rows there are."""
        return len(self.rows)

    @property
    def stages(self) -> int:
        """How many stages have an owner."""
        return len(self.owners)

    @property
    def ticks(self) -> int:
        """Units of time; a pass takes one."""
        return len(self.rows[0]) if self.rows else 0

    def program(self, rank: int) -> list[Action]:
        """What a rank does, one after the other."""
        return [action for action in self.rows[rank] if action is not None]

    def programs(self) -> list[list[Action]]:
        """Rank → what it does."""
        return [self.program(rank) for rank in range(self.ranks)]

    def live(self, rank: int) -> int:
        """The most activations that a rank holds at once, those of all its stages together."""
        return live(self.program(rank))

    def idle(self) -> float:
        """Share of all ticks of all ranks in which nothing is done."""
        cells = self.ranks * self.ticks
        return sum(cell is None for row in self.rows for cell in row) / cells if cells else 0.0

    def cells(self) -> list[list[str]]:
        """The rows as text, ``.`` where a rank idles."""
        return [["." if cell is None else str(cell) for cell in row] for row in self.rows]

    def __str__(self) -> str:
        """One line per rank, one column per tick; `read` understands it."""
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
        """A grid from its cells; rows that end early idle from there on.

        Args:
            rows: for every rank ``2F0``, or ``.`` (also ``-``, nothing, None) where it idles.
            owners: stage → rank; by default the rank in whose row a stage comes first.
            micro_batches: m; by default as many as are named.

        Raises:
            UserError: a cell that is no action, with its rank and tick, or a stage nowhere named.
        """
        ticks = max((len(row) for row in rows), default=0)
        read = []
        for rank, row in enumerate(rows):
            cells = [_cell(text, rank, tick) for tick, text in enumerate(row)]
            read.append((*cells, *[None] * (ticks - len(row))))
        named = [(a, rank) for rank, row in enumerate(read) for a in row if a is not None]
        if owners is None:
            owners = _owners(named)
        if micro_batches is None:
            micro_batches = 1 + max((a.micro for a, _ in named), default=-1)
        return cls(tuple(read), tuple(owners), micro_batches)

    @classmethod
    def read(cls, text: str) -> Grid:
        """What `str` wrote: one line per rank, cells between blanks or commas, idle ones as ``.``;
        ``rank 0 |`` at the start of a line may be left out, ``#`` starts a remark.

        Raises:
            UserError: see `parse`.
        """
        rows = []
        for line in text.splitlines():
            line = re.sub(r"^\s*rank\s*\d+\s*[|:]", "", line.partition("#")[0]).strip()
            if line:
                rows.append([c.strip() for c in line.split(",")] if "," in line else line.split())
        return cls.parse(rows)

    def describe(self) -> dict[str, Any]:
        """For JSON; `restore` makes the grid of it again."""
        rows = [[None if cell is None else str(cell) for cell in row] for row in self.rows]
        return {"owners": list(self.owners), "micro_batches": self.micro_batches, "rows": rows}

    @classmethod
    def restore(cls, value: Mapping[str, Any]) -> Grid:
        """What `describe` gave; ``owners`` and ``micro_batches`` may be missing.

        Raises:
            UserError: no rows of cells, owners that are no ranks, or a cell that is no action.
        """
        rows, owners, m = value.get("rows"), value.get("owners"), value.get("micro_batches")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise UserError('a grid has rows of cells, as in rows = [["0F0", "0B0"]]')
        if owners is not None and not (isinstance(owners, list) and all(map(_number, owners))):
            raise UserError(f"owners are the ranks of the stages, as in [0, 1]; received {owners}")
        if m is not None and not _number(m):
            raise UserError(f"micro_batches is a whole number from 1; received {m}")
        return cls.parse(rows, owners, m)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _cell(text: str | None, rank: int, tick: int) -> Action | None:
    if text is None or (isinstance(text, str) and text.strip() in IDLE):
        return None
    try:
        return Action.parse(str(text))
    except UserError as error:
        raise UserError(f"rank {rank}, tick {tick}: {error}") from None


def _owners(named: Sequence[tuple[Action, int]]) -> tuple[int, ...]:
    """Stage → the rank in whose row it comes first."""
    owners: dict[int, int] = {}
    for action, rank in named:
        owners.setdefault(action.stage, rank)
    stages = 1 + max(owners, default=-1)
    missing = next((stage for stage in range(stages) if stage not in owners), None)
    if missing is not None:
        raise UserError(f"stage {missing} is in no row; the grid has stages up to {stages - 1}")
    return tuple(owners[stage] for stage in range(stages))
