"""What waits for what: data dependencies, the earliest layout of programs, deadlocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.errors import UserError
from dualml.split.schedule import Action, Grid, backward, forward


def needs(action: Action, stages: int) -> tuple[Action, ...]:
    """What must be done before: a forward pass needs that of the stage before; a backward pass its
    own forward pass and the backward pass of the stage after.

    >>> [str(a) for a in needs(Action(1, "B", 0), stages=3)]
    ['1F0', '2B0']
    """
    stage, micro = action.stage, action.micro
    if action.kind == "F":
        return (forward(stage - 1, micro),) if stage else ()
    after = (backward(stage + 1, micro),) if stage + 1 < stages else ()
    return (forward(stage, micro), *after)


@dataclass(frozen=True)
class Wait:
    """``rank`` cannot start ``action`` before ``need`` is done, which its owner does not reach."""

    rank: int
    action: Action
    need: Action


def run(
    programs: Sequence[Sequence[Action]], owners: Sequence[int]
) -> tuple[dict[Action, int], list[int]]:
    """Every rank does its program in order, each action as early as it can, one tick each.

    Returns:
        The tick of each action that gets its turn, and how many actions each rank has done; fewer
        than its program has where the ranks wait for one another for ever.
    """
    ticks: dict[Action, int] = {}
    done = [0] * len(programs)
    free = [0] * len(programs)
    going = True
    while going:
        going = False
        for rank, program in enumerate(programs):
            while done[rank] < len(program):
                action = program[done[rank]]
                waited = needs(action, len(owners))
                if not all(need in ticks for need in waited):
                    break
                ticks[action] = max([free[rank], *(ticks[need] + 1 for need in waited)])
                free[rank] = ticks[action] + 1
                done[rank] += 1
                going = True
    return ticks, done


def deadlock(programs: Sequence[Sequence[Action]], owners: Sequence[int]) -> list[Wait]:
    """The cycle of ranks that wait for one another; empty if the programs end.

    Each rank waits with an action for one that the next rank (after the last: the first) has in
    its program only from the action on with which it waits itself. Every action must be there.
    """
    ticks, done = run(programs, owners)
    stuck = {
        rank: program[done[rank]]
        for rank, program in enumerate(programs)
        if done[rank] < len(program)
    }
    if not stuck:
        return []
    waits: list[Wait] = []
    rank = min(stuck)
    while all(rank != wait.rank for wait in waits):
        action = stuck[rank]
        need = next(n for n in needs(action, len(owners)) if n not in ticks)
        waits.append(Wait(rank, action, need))
        rank = owners[need.stage]
    first = next(i for i, wait in enumerate(waits) if wait.rank == rank)
    return waits[first:]


def told(cycle: Sequence[Wait]) -> str:
    """A deadlock in words: ``rank 0 waits with 0B0 for 1B0 of rank 1, which waits with …``."""
    first = cycle[0]
    if len(cycle) == 1:
        return (
            f"rank {first.rank} waits with {first.action} for {first.need}, "
            "which comes later in its own program"
        )
    begin, *more = [
        f"waits with {wait.action} for {wait.need} of rank {cycle[(i + 1) % len(cycle)].rank}"
        for i, wait in enumerate(cycle)
    ]
    links = "".join(f", which {link}" for link in more)
    last = cycle[-1].need
    end = "" if last == first.action else f", where it comes after {first.action}"
    return f"rank {first.rank} {begin}{links}{end}"


def layout(programs: Sequence[Sequence[Action]], owners: Sequence[int], m: int) -> Grid:
    """The grid in which every action starts as early as it can, forward and backward one tick each.

    Args:
        programs: for every rank what it does, in order.
        owners: stage → rank.
        m: micro-batches.

    Raises:
        UserError: programs that deadlock, with the cycle.
    """
    cycle = deadlock(programs, owners)
    if cycle:
        raise UserError(f"this schedule deadlocks: {told(cycle)}")
    ticks, _ = run(programs, owners)
    rows: list[list[Action | None]] = [
        [None] * (1 + max(ticks.values(), default=-1)) for _ in programs
    ]
    for row, program in zip(rows, programs, strict=True):
        for action in program:
            row[ticks[action]] = action
    return Grid(tuple(map(tuple, rows)), tuple(owners), m)
