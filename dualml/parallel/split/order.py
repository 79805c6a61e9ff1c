"""Order of pipeline actions: data dependencies, the earliest layout of programs, deadlocks, and
validation of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.common.errors import UserError
from dualml.parallel.split.schedule import Action, Grid, backward, forward


def dependencies(action: Action, stages: int) -> tuple[Action, ...]:
    """Return the actions that must be done immediately before ``action`` in a model of ``stages``
    stages; theirs are left out.

    A forward pass needs the forward pass of the previous stage; a backward pass needs its own
    forward pass and the backward pass of the next stage.

    >>> [str(a) for a in dependencies(Action(1, "B", 0), stages=3)]
    ['1F0', '2B0']
    """
    stage, micro = action.stage, action.micro
    if action.kind == "F":
        return (forward(stage - 1, micro),) if stage else ()
    after = (backward(stage + 1, micro),) if stage + 1 < stages else ()
    return (forward(stage, micro), *after)


@dataclass(frozen=True)
class Wait:
    """A blocked rank: ``rank`` cannot start ``action`` before ``need``, which its owner never
    reaches."""

    rank: int
    action: Action
    need: Action


def earliest_ticks(
    programs: Sequence[Sequence[Action]], owners: Sequence[int]
) -> tuple[dict[Action, int], list[int]]:
    """Compute the earliest tick, from 0, of every action if every rank runs its program in order
    and every action takes one tick.

    Args:
        programs: actions of every rank, in order.
        owners: stage → rank.

    Returns:
        The tick of each action that can run, and the number of actions that each rank completes,
            which is smaller than the length of its program if the ranks deadlock.
    """
    ticks: dict[Action, int] = {}
    done, free = [0] * len(programs), [0] * len(programs)
    before = -1
    while before < len(ticks):
        before = len(ticks)
        for rank, program in enumerate(programs):
            while done[rank] < len(program):
                action = program[done[rank]]
                waited = dependencies(action, len(owners))
                if not all(need in ticks for need in waited):
                    break
                ticks[action] = max([free[rank], *(ticks[need] + 1 for need in waited)])
                free[rank] = ticks[action] + 1
                done[rank] += 1
    return ticks, done


def find_deadlock(programs: Sequence[Sequence[Action]], owners: Sequence[int]) -> list[Wait]:
    """Return a cycle of ranks that wait for one another; empty if there is no deadlock.

    Each rank of the cycle waits for an action that the next rank (after the last one: the first)
    runs only after the action with which it waits itself. ``programs`` are the actions of every
    rank in order, ``owners`` the rank of every stage; every action must be in some program.
    """
    ticks, done = earliest_ticks(programs, owners)
    stuck = {r: program[done[r]] for r, program in enumerate(programs) if done[r] < len(program)}
    if not stuck:
        return []
    waits: list[Wait] = []
    rank = min(stuck)
    while all(rank != wait.rank for wait in waits):
        action = stuck[rank]
        need = next(n for n in dependencies(action, len(owners)) if n not in ticks)
        waits.append(Wait(rank, action, need))
        rank = owners[need.stage]
    first = next(i for i, wait in enumerate(waits) if wait.rank == rank)
    return waits[first:]


def describe_deadlock(cycle: Sequence[Wait]) -> str:
    """Return a text about the deadlock ``cycle``, as `find_deadlock` returns it, which must not be
    empty: ``rank 0 waits with 0B0 for 1B0 of rank 1, which waits with …``."""
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


def check_deadlock(programs: Sequence[Sequence[Action]], owners: Sequence[int]) -> None:
    """Raise `UserError` with the cycle if the programs (actions of every rank in order) deadlock;
    ``owners`` are the ranks of the stages."""
    if cycle := find_deadlock(programs, owners):
        raise UserError(f"this schedule deadlocks: {describe_deadlock(cycle)}")


def layout(programs: Sequence[Sequence[Action]], owners: Sequence[int], m: int) -> Grid:
    """Return the grid in which every action starts as early as possible; every pass takes one tick.

    Args:
        programs: actions of every rank, in order.
        owners: stage → rank.
        m: number of micro-batches.

    Raises:
        UserError: the programs deadlock; the message shows the cycle.
    """
    check_deadlock(programs, owners)
    ticks, _ = earliest_ticks(programs, owners)
    length = 1 + max(ticks.values(), default=-1)
    at = [{ticks[action]: action for action in program} for program in programs]
    rows = tuple(tuple(row.get(tick) for tick in range(length)) for row in at)
    return Grid(rows, tuple(owners), m)


def validate(grid: Grid, live: int | Sequence[int] | None = None, *, ticks: bool = True) -> None:
    """Check that every pass runs exactly once on its owner, without deadlock, in a tick after its
    dependencies.

    The order of the programs is checked first, because a real run has no ticks; the ticks are
    checked last.

    Args:
        grid: a schedule of any origin.
        live: largest number of activations that a rank may hold at once, for all ranks or for each;
            None: no limit.
        ticks: whether the ticks are checked, too.

    Raises:
        UserError: the first error, with its position, or the cycle of a deadlock.
    """
    _check_owners(grid)
    _check_complete(grid)
    check_deadlock(grid.programs(), grid.owners)
    if live is not None:
        limits = [live] * grid.ranks if isinstance(live, int) else list(live)
        if len(limits) != grid.ranks:
            raise UserError(f"live bounds for {len(limits)} ranks; the grid has {grid.ranks}")
        _check_live_bound(grid, limits)
    if ticks:
        _check_ticks(grid)


def _check_owners(grid: Grid) -> None:
    """Raise `UserError` unless there are a stage and a micro-batch, and every stage has an existing
    rank."""
    if not grid.owners or grid.micro_batches < 1:
        raise UserError(
            "a schedule has at least one stage and one micro-batch; "
            f"received {grid.stages} and {grid.micro_batches}"
        )
    for stage, rank in enumerate(grid.owners):
        if not 0 <= rank < grid.ranks:
            raise UserError(
                f"stage {stage} is owned by rank {rank}; the grid has {grid.ranks} rows"
            )


def _check_complete(grid: Grid) -> None:
    """Raise `UserError` unless every pass runs exactly once, on the rank that owns its stage."""
    seen: dict[Action, int] = {}
    for rank, row in enumerate(grid.rows):
        for tick, action in enumerate(row):
            if action is None:
                continue
            place = f"rank {rank}, tick {tick}: {action}"
            if not (0 <= action.stage < grid.stages and 0 <= action.micro < grid.micro_batches):
                raise UserError(
                    f"{place} does not exist; stages go from 0 to {grid.stages - 1}, "
                    f"micro-batches from 0 to {grid.micro_batches - 1}"
                )
            if grid.owners[action.stage] != rank:
                raise UserError(
                    f"{place} belongs on the row of rank {grid.owners[action.stage]}, "
                    f"which owns stage {action.stage}"
                )
            if action in seen:
                raise UserError(f"{place} was done before, in tick {seen[action]}")
            seen[action] = tick
    wanted = (
        make(stage, k)
        for stage in range(grid.stages)
        for make in (forward, backward)
        for k in range(grid.micro_batches)
    )
    # Counted, not listed: a file may name more micro-batches than fit in memory.
    count = 2 * grid.stages * grid.micro_batches - len(seen)
    if count:
        first = next(action for action in wanted if action not in seen)
        more = f" and {count - 1} more" if count > 1 else ""
        raise UserError(
            f"{first} is missing on the row of rank {grid.owners[first.stage]}{more}; each of "
            f"{grid.stages} stages does F and B once for each of {grid.micro_batches} micro-batches"
        )


def _check_live_bound(grid: Grid, limits: Sequence[int]) -> None:
    """Raise `UserError` if a rank holds more activations at once than its entry of ``limits``."""
    for rank, most in enumerate(limits):
        held = grid.live(rank)
        if held > most:
            raise UserError(
                f"rank {rank} holds {held} activations at once, more than {most}: "
                "let it go backward earlier"
            )


def _check_ticks(grid: Grid) -> None:
    """Raise `UserError` unless every action comes in a later tick than its dependencies."""
    at = {a: tick for row in grid.rows for tick, a in enumerate(row) if a is not None}
    for action, tick in sorted(at.items(), key=lambda item: item[1]):
        for need in dependencies(action, grid.stages):
            if at[need] >= tick:
                raise UserError(
                    f"rank {grid.owners[action.stage]}, tick {tick}: {action} needs {need}, "
                    f"which rank {grid.owners[need.stage]} does in tick {at[need]}; "
                    "put idle ticks (.) before it"
                )
