"""What an aggregation costs, without its schedule: its steps, alike ones together."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.aggregation.schedule import Schedule


@dataclass(frozen=True)
class Stage:
    """One step, or ``times`` alike ones in a row.

    Attributes:
        kind, distance: who sends to whom: ``shift`` (r to r + distance; 0: each distance once),
            ``up`` and ``down`` (binomial tree), ``swap`` (r with r xor distance), ``in`` and
            ``out`` (ranks from ``distance`` on with the rank ``distance`` below), ``push`` and
            ``pull`` (all with rank 0), ``both`` (the neighbours on a ring), ``step`` (as in the
            schedule).
        messages, bytes: on the busiest port of one step.
        added: bytes the busiest rank adds up in one step.
        total: bytes of all ranks in one step.
        all_messages: messages of all ranks in one step.
    """

    kind: str
    distance: int
    messages: int
    bytes: int
    added: int
    total: int
    all_messages: int
    times: int = 1


def stages_of(schedule: Schedule, length: int) -> list[Stage]:
    """The stages of a schedule for a vector of ``length`` elements, counted message by message."""
    return [_stage(schedule, number, length) for number in range(len(schedule.steps))]


def _stage(schedule: Schedule, number: int, length: int) -> Stage:
    ports: dict[tuple[str, int], list[int]] = {}
    added: dict[int, int] = {}
    for t in schedule.steps[number]:
        first, end = schedule.span(t, length)
        for port in (("out", t.source), ("in", t.target)):
            ports.setdefault(port, []).append(end - first)
        if t.then == "add":
            added[t.target] = added.get(t.target, 0) + end - first
    busiest = max(ports.values(), key=lambda moved: (sum(moved), len(moved)))
    total = sum(sum(moved) for (side, _), moved in ports.items() if side == "out")
    return Stage(
        "step", 0, len(busiest), sum(busiest), max(added.values(), default=0), total,
        len(schedule.steps[number]),
    )  # fmt: skip
