"""Schedules that cannot run are refused, deadlocks with their actual cycle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.parallel.split.order import dependencies, find_deadlock, layout, validate
from dualml.parallel.split.schedule import Action, Grid
from dualml.parallel.split.schedules import SCHEDULES, build


def check_cycle(programs: list[list[Action]], owners: tuple[int, ...]) -> None:
    """Assert that the deadlock is a true cycle: each rank waits for an action that the next rank
    runs only after its own blocked action."""
    cycle = find_deadlock(programs, owners)
    assert len({wait.rank for wait in cycle}) == len(cycle) > 0
    for wait, then in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        assert wait.action in programs[wait.rank]
        assert wait.need in dependencies(wait.action, len(owners))
        assert owners[wait.need.stage] == then.rank
        program = programs[then.rank]
        assert program.index(wait.need) >= program.index(then.action)


@given(
    st.sampled_from(list(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 2),
    st.integers(1, 12),
    st.integers(0, 6),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=200)
def test_permuted_programs_run_or_have_a_true_cycle(
    name: str, p: int, v: int, m: int, swaps: int, random: object
) -> None:
    owners = tuple(range(p)) * v
    m = -(-m // p) * p if name == "interleaved" else m
    grid = build(name, owners, m)
    programs = grid.programs()
    for _ in range(swaps):
        program = random.choice(programs)  # type: ignore[attr-defined]
        i, j = (random.randrange(len(program)) for _ in range(2))  # type: ignore[attr-defined]
        program[i], program[j] = program[j], program[i]
    rows = Grid(tuple(map(tuple, programs)), owners, m)
    if find_deadlock(programs, owners):
        check_cycle(programs, owners)
        with pytest.raises(UserError, match=r"this schedule deadlocks: rank .* waits with"):
            validate(rows)
        with pytest.raises(UserError, match="this schedule deadlocks"):
            layout(programs, owners, m)
    else:
        validate(rows, ticks=False)
        laid = layout(programs, owners, m)
        validate(laid)
        assert laid.programs() == programs


def test_a_deadlock_in_words() -> None:
    grid = Grid.read("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
    check_cycle(grid.programs(), grid.owners)
    with pytest.raises(UserError) as refused:
        validate(grid)
    assert str(refused.value) == (
        "this schedule deadlocks: rank 0 waits with 0B0 for 1B0 of rank 1, "
        "which waits with 1F1 for 0F1 of rank 0, where it comes after 0B0"
    )


def test_a_cycle_of_three_leaves_out_who_only_waits_for_it() -> None:
    owners = (0, 1, 2, 3)
    programs = [
        [Action.parse(word) for word in text.split()]
        for text in ("0F0 0B0", "1F0 1B0", "2B0 2F0", "3F0 3B0")
    ]
    cycle = find_deadlock(programs, owners)
    assert [(w.rank, str(w.action), str(w.need)) for w in cycle] == [(2, "2B0", "2F0")]
    with pytest.raises(UserError, match="rank 2 waits with 2B0 for 2F0, which comes later in its"):
        layout(programs, owners, 1)


def test_a_cycle_that_ends_where_it_began() -> None:
    grid = Grid.parse([["2F0", "0F0", "2B0", "0B0"], ["1F0", "1B0"]], (0, 1, 0))
    check_cycle(grid.programs(), grid.owners)
    with pytest.raises(UserError) as refused:
        validate(grid)
    assert str(refused.value).endswith(
        "rank 0 waits with 2F0 for 1F0 of rank 1, which waits with 1F0 for 0F0 of rank 0, "
        "where it comes after 2F0"
    )


GOOD = [["0F0", "0F1", ".", "0B0", ".", "0B1"], [".", "1F0", "1B0", "1F1", "1B1", "."]]


def changed(rank: int, tick: int, text: str) -> list[list[str]]:
    rows = [list(row) for row in GOOD]
    rows[rank][tick] = text
    return rows


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (changed(0, 2, "0B0"), "rank 0, tick 3: 0B0 was done before, in tick 2"),
        (changed(1, 4, "."), "1B1 is missing on the row of rank 1; each of 2 stages does F and B"),
        (changed(1, 5, "0F1"), "rank 1, tick 5: 0F1 belongs on the row of rank 0, which owns st"),
        (changed(0, 2, "0F2"), "rank 0, tick 2: 0F2 does not exist.* micro-batches from 0 to 1"),
        (changed(0, 2, "2F0"), "rank 0, tick 2: 2F0 does not exist; stages go from 0 to 1"),
        ([GOOD[0][:1] + GOOD[0][3:], GOOD[1]], "missing on the row of rank 0"),
    ],
)
def test_what_is_missing_double_or_misplaced(rows: list[list[str]], told: str) -> None:
    validate(Grid.parse(GOOD, (0, 1), 2), live=2)
    with pytest.raises(UserError, match=told):
        validate(Grid.parse(rows, (0, 1), 2))


def test_ticks_come_after_those_they_wait_for() -> None:
    rows = [GOOD[0], [*GOOD[1][1:], "."]]
    grid = Grid.parse(rows, (0, 1), 2)
    validate(grid, ticks=False)
    with pytest.raises(UserError, match=r"rank 1, tick 0: 1F0 needs 0F0, which rank 0 does in tic"):
        validate(grid)


def test_activations_have_a_bound() -> None:
    gpipe = build("gpipe", (0, 1), 8)
    with pytest.raises(UserError, match="rank 0 holds 8 activations at once, more than 4: let it"):
        validate(gpipe, live=4)
    with pytest.raises(UserError, match="rank 1 holds 8 activations at once, more than 7"):
        validate(gpipe, live=[8, 7])
    with pytest.raises(UserError, match="live bounds for 1 ranks; the grid has 2"):
        validate(gpipe, live=[8])
    validate(build("1f1b", (0, 1), 8), live=[2, 1])


def test_grids_of_nothing() -> None:
    with pytest.raises(UserError, match="at least one stage and one micro-batch"):
        validate(Grid.read(""))
    with pytest.raises(UserError, match="stage 1 is owned by rank 5; the grid has 2 rows"):
        validate(Grid.parse(GOOD, (0, 5), 2))
