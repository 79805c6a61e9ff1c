"""Tables in the terminal: complete, wrapped where necessary, never interpreted as markup."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.console import Console

from dualml.report.blocks import Cell, Column, Table
from dualml.report.page import terminal

TABLE = Table(
    "arms",
    "Arms [b]of[/b] a run",
    [
        Column("arm", "arm"),
        Column("optimizer.lr", "optimizer.lr", "1", "number"),
        Column("slow", "slow"),
    ],
    [
        ["a-very-long-name-of-an-arm", "0.1", Cell("rank=1, bandwidth_bytes_per_s=2e+07", "bad")],
        ["b", "12", Cell("[/]", note="beneath")],
    ],
)


def printed(table: Table, width: int, **console: object) -> list[str]:
    out = Console(width=width, **console)
    with out.capture() as captured:
        terminal.show(table, out)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [46, 80, 160])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    lines = printed(TABLE, width)
    assert max(map(len, lines)) <= width
    assert lines[0] == "Arms [b]of[/b] a run"
    assert any(line.startswith("a-very-long-name-of-an-arm ") for line in lines)
    start = next(line for line in lines if "rank=1" in line).index("rank=1")
    column = "".join(line[start:].strip() for line in lines[1:])
    assert "rank=1,bandwidth_bytes_per_s=2e+07[/]beneath" in column.replace(" ", "")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_words_stay_whole_where_there_is_room_for_them(width: int) -> None:
    columns = [Column("a", "experiment"), Column("b", "what it is"), Column("c", "state")]
    rows = [["lab1", "the first of several experiments, with optimizers", "interrupted"]]
    lines = printed(Table("t", "", columns, rows), width)
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert words <= {w for text in (*rows[0], *(c.label for c in columns)) for w in text.split()}


def test_a_column_that_may_be_left_out_is_left_out_first() -> None:
    columns = [Column("a", "name"), Column("b", "created", optional=True), Column("c", "state")]
    table = Table("t", "", columns, [["an-experiment", "2026-01-01T10:00:00", "interrupted"]])
    assert "created" not in "".join(printed(table, 30))
    assert [line.split() for line in printed(table, 30)][1] == ["an-experiment", "interrupted"]
    assert "created" in "".join(printed(table, 60))


def test_long_names_break_at_their_joints() -> None:
    columns = [Column("a", "arm"), Column("b", "split.micro_batches"), Column("c", "slow")]
    table = Table("t", "", columns, [["one", "4", "rank=1, bandwidth_bytes_per_s=2e+07"]])
    words = [word for line in printed(table, 34) for word in line.split()]
    broken = {word for word in words if word in "bandwidth_bytes_per_s=2e+07"} - {"4"}
    assert "2e+07" in "".join(words)
    assert {word[-1] for word in broken} <= set("_=7")
    assert {"split.", "micro_", "batches"} <= set(words)


def test_numbers_stand_right_and_parts_of_a_key_beneath_each_other() -> None:
    lines = printed(TABLE, 160)
    head = next(k for k, line in enumerate(lines) if "optimizer." in line)
    assert "lr" in lines[head + 1]
    end = lines[head + 1].index("lr") + 2
    assert [line[:end].split()[-1] for line in lines[head + 3 :][:2]] == ["0.1", "12"]


def test_tones_are_colours() -> None:
    lines = printed(TABLE, 160, force_terminal=True, color_system="standard")
    assert any("\x1b[31mrank=1" in line for line in lines)


def test_a_shade_is_a_ground_code_a_colour_and_no_label_no_head() -> None:
    table = Table("t", "", [Column("k", ""), Column("v", "")], [["`f`", Cell("7", shade=1.0)]])
    lines = printed(table, 80, force_terminal=True, color_system="truecolor")
    assert len(lines) == 1
    assert "\x1b[36mf\x1b" in lines[0]
    assert "\x1b[37;48;2;30;100;180m7" in lines[0]


def test_it_waits_for_nothing_heavy() -> None:
    code = (
        "import sys, dualml.report.page.terminal\n"
        "bad = {'numpy', 'markupsafe', 'pydantic', 'rich'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
