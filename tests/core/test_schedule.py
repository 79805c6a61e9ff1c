"""Pipeline schedules as data: text, JSON, textbook numbers, any number of ranks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.parallel.split.order import dependencies, validate
from dualml.parallel.split.schedule import Action, Grid
from dualml.parallel.split.schedules import SCHEDULES, bubble, build, live_bound

PARAMETER_SERVER = (0, 1, 0)

ONE_F_ONE_B = """
rank 0 | 0F0 0F1 0F2 0F3  .   .   .  0B0 0F4 0B1 0F5 0B2  .  0B3  .  0B4  .  0B5
rank 1 |  .  1F0 1F1 1F2  .   .  1B0 1F3 1B1 1F4 1B2 1F5 1B3  .  1B4  .  1B5  .
rank 2 |  .   .  2F0 2F1  .  2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4  .  2B5  .   .
rank 3 |  .   .   .  3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5  .   .   .
"""
#: Two ranks with two stages each.
INTERLEAVED = """
rank 0 | 0F0 0F1 2F0 2F1  .  2B0  .  2B1 0B0 0B1
rank 1 |  .  1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1  .
"""


def valid_layout(name: str, p: int, v: int, m: int) -> tuple[tuple[int, ...], int]:
    """Return owners and a number of micro-batches that are valid for the schedule."""
    return tuple(range(p)) * v, -(-m // p) * p if name == "interleaved" else m


def test_an_action_is_written_as_torch_does() -> None:
    assert str(Action(2, "F", 0)) == "2F0"
    assert Action.parse(" 12B345 ") == Action(12, "B", 345)
    for text in ("", "F0", "2F", "2W0", "-1F0", "2f0", "２F0"):
        with pytest.raises(UserError, match="is no action: write stage, F or B"):
            Action.parse(text)


def test_needs() -> None:
    def needs_of(text: str) -> list[str]:
        return [str(a) for a in dependencies(Action.parse(text), 3)]

    assert needs_of("0F5") == []
    assert needs_of("2F5") == ["1F5"]
    assert needs_of("2B5") == ["2F5"]
    assert needs_of("0B5") == ["0F5", "1B5"]


def test_the_grids_of_the_textbooks() -> None:
    assert str(build("1f1b", range(4), 6)).strip() == ONE_F_ONE_B.strip()
    assert str(build("interleaved", (0, 1, 0, 1), 2)).strip() == INTERLEAVED.strip()
    assert str(build("naive", (0, 1), 1)) == "rank 0 | 0F0  .   .  0B0\nrank 1 |  .  1F0 1B0  ."
    assert str(build("gpipe", (0, 1), 2)) == (
        "rank 0 | 0F0 0F1  .   .  0B0 0B1\nrank 1 |  .  1F0 1F1 1B0 1B1  ."
    )
    steady = [str(a) for a in build("interleaved", (0, 1, 2, 3) * 2, 8).program(3)]
    assert steady[:9] == ["3F0", "3F1", "3F2", "3F3", "7F0", "7B0", "7F1", "7B1", "7F2"]


@given(
    st.sampled_from(list(SCHEDULES)),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 12),
)
@settings(deadline=None)
def test_every_schedule_is_one_and_keeps_its_bound(name: str, p: int, v: int, m: int) -> None:
    owners, m = valid_layout(name, p, v, m)
    grid = build(name, owners, m)
    bounds = [live_bound(name, owners, m, rank) for rank in range(p)]
    validate(grid, bounds)
    assert (grid.ranks, grid.stages, grid.micro_batches) == (p, p * v, m)
    held = [grid.live(rank) for rank in range(p)]
    if not name.endswith("1f1b") or v == 1:
        assert held == bounds
    if name == "1f1b" and v == 1:
        assert all(held[rank] <= min(m, p - rank) for rank in range(p))
    if name == "naive":
        busy = [sum(row[t] is not None for row in grid.rows) for t in range(grid.ticks)]
        assert set(busy) == {1}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 6))
@settings(deadline=None)
def test_any_owners(drawn: list[int], m: int) -> None:
    ranks = sorted(set(drawn))
    owners = tuple(ranks.index(rank) for rank in drawn)
    for name in ("naive", "gpipe", "1f1b", "eager-1f1b"):
        grid = build(name, owners, m)
        validate(grid, [live_bound(name, owners, m, rank) for rank in range(grid.ranks)])


@pytest.mark.parametrize("p", range(1, 7))
@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_the_bubble_is_the_formulas(p: int, m: int) -> None:
    for name in ("gpipe", "1f1b", "eager-1f1b"):
        grid = build(name, range(p), m)
        assert grid.idle() == bubble(p, m) == (p - 1) / (m + p - 1)
        assert grid.ticks == 2 * (m + p - 1)
    for v in (2, 3):
        grid = build("interleaved", tuple(range(p)) * v, m * p)
        assert grid.idle() == bubble(p, m * p, v)
        # Over the time of the passes alone, as the paper has it.
        assert grid.ticks / (2 * v * m * p) - 1 == pytest.approx((p - 1) / (v * m * p))


def test_eager_is_a_round_ahead() -> None:
    """Zhuang et al. 2023, section 4: 2 (p − r) − 1 forward passes before the first backward one."""
    for p, m in ((2, 8), (4, 12)):
        grid = build("eager-1f1b", range(p), m)
        for rank in range(p):
            kinds = "".join(a.kind for a in grid.program(rank))
            warm = 2 * (p - rank) - 1
            assert kinds == "F" * warm + "BF" * (m - warm) + "B" * warm
            assert grid.live(rank) == warm == live_bound("eager-1f1b", range(p), m, rank)


def test_the_warm_up_of_interleaved_ranks_is_megatrons() -> None:
    """2 (p − r − 1) + (v − 1) p forward passes, and one more before the first backward pass."""
    programs = build("interleaved", (0, 1, 2, 3) * 2, 8).programs()
    first = [[action.kind for action in program].index("B") for program in programs]
    assert first == [6 + 4 + 1, 4 + 4 + 1, 2 + 4 + 1, 0 + 4 + 1]


def test_a_stage_that_comes_back_to_its_rank() -> None:
    """The parameter-server shape: rank 0 has both ends, rank 1 the middle."""
    for name, live in (("naive", [2, 1]), ("gpipe", [8, 4]), ("1f1b", [3, 2])):
        grid = build(name, PARAMETER_SERVER, 4)
        validate(grid)
        assert [grid.live(rank) for rank in range(2)] == live
        assert all(a.stage in (0, 2) for a in grid.program(0))


@given(st.sampled_from(list(SCHEDULES)), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None)
def test_text_and_json_bring_it_back(name: str, p: int, m: int) -> None:
    owners, m = valid_layout(name, p, 2, m)
    grid = build(name, owners, m)
    assert Grid.read(str(grid)) == grid
    assert Grid.parse(grid.cells(), owners) == grid
    assert Grid.restore(json.loads(json.dumps(grid.describe()))) == grid
    assert Grid.read("\n".join(",".join(row) for row in grid.cells())) == grid


def test_rows_may_end_early_and_be_remarked() -> None:
    grid = Grid.read("# two ranks\n0F0 - - 0B0  # server\n. 1F0 1B0\n")
    assert grid == build("naive", (0, 1), 1)
    assert Grid.parse([["0F0", None, "", "0B0"], ["", "1F0", "1B0"]]) == grid


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([["0F0", "0B"]], r"rank 0, tick 1: '0B' is no action: write stage, F or B"),
        ([["0F0", "2B0", "0B0"]], r"stage 1 is in no row; the grid has stages up to 2"),
    ],
)
def test_text_that_is_no_grid_names_the_cell(rows: list[list[str]], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Grid.parse(rows)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "rows of cells"),
        ({"rows": ["0F0"]}, "rows of cells"),
        ({"rows": [["0F0"]], "owners": ["0"]}, "owners are the ranks of the stages"),
        ({"rows": [["0F0"]], "micro_batches": True}, "micro_batches is a whole number"),
        ({"rows": [[3]]}, "rank 0, tick 0: '3' is no action"),
    ],
)
def test_json_that_is_no_grid(value: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Grid.restore(value)


def test_rows_are_equally_long() -> None:
    with pytest.raises(UserError, match=r"equally long; received \[1, 2\]"):
        Grid(((None,), (None, None)), (0, 1), 1)


@pytest.mark.parametrize(
    ("name", "owners", "m", "told"),
    [
        ("1f1d", (0, 1), 4, "unknown pipeline schedule '1f1d'; did you mean '1f1b'"),
        ("gpipe", (0, 2), 4, r"every rank from 0 on a stage, as in \(0, 1, 0\); received"),
        ("gpipe", (), 4, "owners give every stage its rank"),
        ("naive", (0, 1), 0, "at least 1 micro-batch; received 0"),
        ("interleaved", (0, 1, 0, 1), 5, "multiple of 2 micro-batches.* received 5: use 4 or 6"),
        ("interleaved", (0, 1, 2) * 2, 2, "received 2: use 3"),
        ("interleaved", (0, 1, 0), 2, "in turn, as in owners 0, 1, 0, 1; received 0, 1, 0"),
    ],
)
def test_what_cannot_be_built(name: str, owners: tuple[int, ...], m: int, told: str) -> None:
    with pytest.raises(UserError, match=told):
        build(name, owners, m)
