"""`dualml simulate --pipeline` and `--grid`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import DOCS, dualml, examples_are_printed, strict

from dualml.common.errors import UserError
from dualml.interface.cli import report_error
from dualml.interface.cli.simulate import simulate as command
from dualml.parallel.split.schedule import Grid
from dualml.parallel.split.schedules import bubble, build
from dualml.planning.cost.pipeline import simulate_pipeline

DEADLOCK = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0\n"


def test_the_grid_the_bubble_and_what_lives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command(pipeline="1f1b", ranks="3", micro_batches=5)
    told = capsys.readouterr().out
    grid = build("1f1b", range(3), 5)
    rows = [re.findall(r"\d+[FB]\d+", line) for line in told.splitlines() if "F0" in line]
    assert rows == [[str(a) for a in grid.program(rank)] for rank in range(3)]
    assert all(len(line) <= 80 for line in told.splitlines())
    assert "bubble: 28.6 % of all ticks; by the formula (p−1)/(m+p−1) = 28.6 %" in told
    assert re.search(r"rank\s+live\s+at most\n\s+0\s+3\s+3\n\s+1\s+2\s+2\n\s+2\s+1\s+1\n", told)


def test_ticks_go_on_below_and_are_cut_with_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command(pipeline="gpipe", ranks="4", micro_batches=10)
    told = capsys.readouterr().out
    assert told.count("rank 0") == 2
    assert "more ticks" not in told
    command(pipeline="gpipe", ranks="4", micro_batches=64, lang="zh")
    told = capsys.readouterr().out
    heads = [line for line in told.splitlines() if line.startswith("时间步")]
    assert len(heads) == told.count("rank 0") == 3
    shown = int(heads[-1].split()[-1]) + 1
    assert f"还有 {2 * (64 + 3) - shown} 个时间步" in told


def test_json_with_seconds() -> None:
    done = dualml(
        *("simulate", "--pipeline", "interleaved", "--ranks", "2", "--micro-batches", "4"),
        *("--forward", "1ms", "--size", "1MB", "--update", "1ms", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = strict(done.stdout)
    grid = build("interleaved", (0, 1, 0, 1), 4)
    assert Grid.restore(found["grid"]) == grid
    assert found["theory"] == bubble(2, 4, 2) == found["idle"]
    assert found["live"] == found["live_bound"] == [5, 3]
    told = simulate_pipeline(grid, 1e-3, 2e-3, 5e-5 + 1e-3, 1e-3)
    assert found["timeline"]["seconds"] == pytest.approx(told.seconds)
    assert found["timeline"]["bubble"] == pytest.approx(told.bubble)


def test_owners_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    command(pipeline="1f1b", owners="0,1,0", forward="1ms,2ms,3ms", json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["grid"]["owners"] == [0, 1, 0]
    assert found["theory"] is None
    took = {s["action"]: s["end_s"] - s["start_s"] for s in found["timeline"]["ranks"][0]}
    assert took["2B3"] == pytest.approx(6e-3)
    command(pipeline="naive", micro_batches=1, ranks="2")
    assert "bubble: 50.0 % of all ticks; by the formula (p−1)/p = 50.0 %" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["txt", "csv", "json", "toml"])
def test_a_grid_from_a_file(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = build("1f1b", (0, 1), 3)
    path = tmp_path / f"grid.{kind}"
    text = {
        "txt": str(grid),
        "csv": "\n".join(",".join(row) for row in grid.cells()),
        "json": json.dumps(grid.describe()),
        "toml": f"owners = [0, 1]\nrows = {json.dumps(grid.cells())}\n",
    }[kind]
    path.write_text(text)
    command(grid=path, json=True)
    found = json.loads(capsys.readouterr().out)
    assert Grid.restore(found["grid"]) == grid
    assert found["live_bound"] is None
    command(grid=path, forward="1ms")
    told = capsys.readouterr().out
    assert re.search(r"rank\s+live\s+busy\s+idle\n\s+0\s+2\s+9.00 ms", told)


def test_a_grid_that_deadlocks(tmp_path: Path) -> None:
    path = tmp_path / "grid.txt"
    path.write_text(DEADLOCK)
    done = dualml("simulate", "--grid", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"dualml: {path}: this schedule deadlocks: rank 0 waits with 0B0 for 1B0 of rank 1, "
        "which waits with 1F1 for 0F1 of rank 0, where it comes after 0B0\n"
    )


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.txt", "0F0 0Q0\n", "a.txt: rank 0, tick 1: '0Q0' is no action"),
        ("a.json", "{", "a.json: not JSON: Expecting"),
        ("a.json", "3", "a.json: a grid has rows of cells"),
        ("a.toml", "rows = 3", "a.toml: a grid has rows of cells"),
        ("a.toml", "rows [", "a.toml: Expected"),
        ("a.txt", "", "a.txt: a schedule has at least one stage"),
    ],
)
def test_files_that_are_no_grid(name: str, text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(told)):
        command(grid=path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"pipeline": "1f1d"}, "did you mean '1f1b'"),
        ({"pipeline": "interleaved", "micro_batches": 6}, "received 6: use 4 or 8"),
        ({"pipeline": "1f1b", "ranks": "2,4"}, "one number of ranks and of chunks on each"),
        ({"pipeline": "1f1b", "ranks": "2..4"}, "--ranks '2..4': write whole numbers"),
        ({"pipeline": "1f1b", "chunks": 0}, "one number of ranks and of chunks"),
        ({"pipeline": "1f1b", "micro_batches": 0}, "at least 1 micro-batch"),
        ({"pipeline": "1f1b", "ranks": "65"}, "up to 64 ranks"),
        ({"pipeline": "gpipe", "micro_batches": 10**6}, "200,000 passes; received"),
        ({"pipeline": "1f1b", "owners": "0,1", "ranks": "2"}, "leave out --ranks, --chunks"),
        ({"pipeline": "1f1b", "owners": "0,2"}, "every rank from 0 on a stage"),
        ({"pipeline": "1f1b", "backward": "1ms"}, "--backward: a pipeline in seconds needs"),
        ({"pipeline": "1f1b", "forward": "1ms,2ms"}, "one for each of 4 stages; got 2"),
        ({"pipeline": "1f1b", "forward": "1"}, "--forward '1': write a number with ns"),
        ({"pipeline": "1f1b", "strategy": ["ring"]}, "a pipeline has no use for --strategy"),
        ({"pipeline": "1f1b", "schedule": True, "seed": 3}, "no use for --seed, --schedule"),
        ({"pipeline": "1f1b", "grid": Path("x")}, "--grid brings the whole schedule"),
        ({"chunks": 2, "forward": "1ms"}, "--chunks, --forward: of a pipeline; say which one"),
        ({"grid": Path("none.txt")}, "none.txt: No such file"),
    ],
    ids=str,
)
def test_bad_input_names_the_remedy(
    options: dict[str, object], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((UserError, OSError)) as refused:
        command(**options)  # type: ignore[arg-type]
    assert report_error(refused.value) == 2  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("page", ["cost.md", "cost.zh.md"])
def test_the_examples_of_the_page_are_what_is_printed(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examples_are_printed(DOCS / page, "```text", 80, capsys) == 1
