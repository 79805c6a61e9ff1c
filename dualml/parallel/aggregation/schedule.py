"""Communication schedules as data: which rank sends which chunk to which rank, step by step.

A vector is split into ``chunks`` parts, nearly equal or at given bounds. All transfers of a step
happen at once: a rank sends the chunk as it was before the step, and the receiver adds it to its
own chunk (``add``) or replaces its own (``put``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Literal

from dualml.algorithms.communicator.parts import part_start
from dualml.common.errors import CommunicationError, UserError
from dualml.common.former_members import keep_former_members

#: Operation of the receiver: add the chunk to its own one, or replace its own one.
ReceiveOp = Literal["add", "put"]


@keep_former_members
@dataclass(frozen=True)
class Transfer:
    """One message: chunks ``first`` … ``last`` from ``source`` to ``target``, which adds them to
    its own (``op`` is ``add``) or replaces its own (``put``)."""

    source: int
    target: int
    first: int
    last: int
    op: ReceiveOp

    @property
    def name(self) -> str:
        """Range of chunks as text: ``2`` or ``0-3``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@keep_former_members
@dataclass(frozen=True)
class CollectiveSchedule:
    """All messages of one aggregation.

    Attributes:
        ranks: number of ranks that take part.
        chunks: number of parts that the vector is split into.
        bounds: start of each chunk, and the end of the last one, in elements; empty: nearly equal
            parts of a vector of any length.
        steps: transfers of each step, which are independent of one another: at most one from a rank
            to another.

    Raises:
        UserError: a rank sends another one two messages in one step, of which an exchange would
            keep only the last.
    """

    ranks: int
    chunks: int
    steps: tuple[tuple[Transfer, ...], ...]
    bounds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps, start=1):
            pairs = [(t.source, t.target) for t in step]
            if len(set(pairs)) < len(pairs):
                (source, target), times = Counter(pairs).most_common(1)[0]
                raise UserError(
                    f"step {number}: rank {source} sends rank {target} {times} messages; a step "
                    "has at most one from a rank to another: send adjacent chunks as one transfer, "
                    "or split the step"
                )

    def sent_volume(self, rank: int, length: int) -> tuple[int, int]:
        """Return the number of messages and of elements that ``rank`` sends for a vector of
        ``length``."""
        return self._volume("source", rank, length)

    def received_volume(self, rank: int, length: int) -> tuple[int, int]:
        """Return the number of messages and of elements that ``rank`` receives for a vector of
        ``length``."""
        return self._volume("target", rank, length)

    def _volume(self, side: str, rank: int, length: int) -> tuple[int, int]:
        """Return the number of messages and of elements of all transfers whose ``side`` (``source``
        or ``target``) is ``rank``, for a vector of ``length`` elements."""
        chosen = [t for step in self.steps for t in step if getattr(t, side) == rank]
        return len(chosen), sum(b - a for a, b in (self.span(t, length) for t in chosen))

    def span(self, t: Transfer, length: int) -> tuple[int, int]:
        """Return the first element of the chunks of transfer ``t``, and one past the last, in a
        vector of ``length`` elements.

        Raises:
            CommunicationError: the bounds belong to a vector of another length.
        """
        if self.bounds:
            if length != self.bounds[-1]:
                raise CommunicationError(
                    f"chunks of {self.bounds[-1]} elements cannot cut a vector of {length}"
                )
            return self.bounds[t.first], self.bounds[t.last + 1]
        return part_start(length, self.chunks, t.first), part_start(length, self.chunks, t.last + 1)

    def grid(self) -> str:
        """Return the schedule as text, one line per rank, one column per step: ``2→3`` sends chunk
        2 to rank 3; ``+`` marks a chunk that is added there, ``=`` one that replaces; ``.`` is a
        step without sending.

        >>> from dualml.parallel.aggregation import Ring
        >>> print(Ring().schedule(2).grid())
        rank 0 | 0→1+  1→1=
        rank 1 | 1→0+  0→0=
        """
        sign = {"add": "+", "put": "="}
        cells = [
            [
                " ".join(f"{t.name}→{t.target}{sign[t.op]}" for t in step if t.source == rank)
                or "."
                for step in self.steps
            ]
            for rank in range(self.ranks)
        ]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.steps))]
        digits = len(str(self.ranks - 1))
        return "\n".join(
            f"rank {rank:>{digits}} | "
            + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for rank, row in enumerate(cells)
        )


@dataclass(frozen=True)
class StepGroup:
    """One step, or ``times`` equal steps in a row.

    Sizes are in bytes; those that `Strategy.step_groups` and `count_step_groups` return are in
    elements instead.

    Attributes:
        kind, distance: pattern of the messages: ``shift`` (r to r + distance; 0: each distance
            once), ``turn`` (to the next of ``distance`` ranks in a ring), ``up`` and ``down``
            (binomial tree), ``swap`` (r with r xor distance), ``in`` and ``out`` (ranks from
            ``distance`` on with the rank ``distance`` below), ``push`` and ``pull`` (all with rank
            0), ``both`` (the neighbours on a ring), ``step`` (as in the schedule).
        messages, bytes: number and bytes of the messages on the busiest port in one step.
        added: bytes that the busiest rank adds in one step.
        total: bytes sent by all ranks in one step.
        all_messages: messages of all ranks in one step.
        times: number of equal steps in a row.
    """

    kind: str
    distance: int
    messages: int
    bytes: int
    added: int
    total: int
    all_messages: int
    times: int = 1


def count_step_groups(schedule: CollectiveSchedule, length: int) -> list[StepGroup]:
    """Return one group per step of a schedule for a vector of ``length`` elements, counted message
    by message, with sizes in elements; equal steps are not merged."""
    stages = []
    for step in schedule.steps:
        ports, added = defaultdict[tuple[str, int], list[int]](list), Counter[int]()
        for t in step:
            first, end = schedule.span(t, length)
            ports["out", t.source].append(end - first)
            ports["in", t.target].append(end - first)
            added[t.target] += (end - first) * (t.op == "add")
        busiest = max(ports.values(), key=lambda moved: (sum(moved), len(moved)))
        total = sum(sum(moved) for (side, _), moved in ports.items() if side == "out")
        most = len(busiest), sum(busiest), max(added.values())
        stages.append(StepGroup("step", 0, *most, total, len(step)))
    return stages
