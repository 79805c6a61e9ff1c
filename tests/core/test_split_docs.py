"""The pages on split models: examples that work, keys that exist, output as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command import DOCS

from dualml.algorithms.model import model
from dualml.common.errors import UserError
from dualml.experiment.arm import make_arm
from dualml.experiment.keys import SPLIT, WrittenKeys, stored_name
from dualml.experiment.split import Split
from dualml.parallel.split.order import find_deadlock, validate
from dualml.parallel.split.schedule import Grid
from dualml.parallel.split.schedules import SCHEDULES
from dualml.parallel.split.timeline import COLUMNS, KINDS

PAGES = [DOCS / "split.md", DOCS / "split.zh.md"]
KEYS = {"split.md": "| key of `split` |", "split.zh.md": "| `split` 的键 |"}
ERRORS = {"split.md": "| message |", "split.zh.md": "| 错误信息 |"}
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text("utf-8"), re.S)


def table(page: Path, head: str) -> list[list[str]]:
    """Return the cells of the rows below a header."""
    lines = page.read_text("utf-8").splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith(head)]
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@by_page
def test_the_keys_are_those_of_split_with_their_defaults(page: Path) -> None:
    rows = {key.strip("`"): default.strip("`") for key, default, _ in table(page, KEYS[page.name])}
    stored = {stored_name(key, SPLIT): default for key, default in rows.items()}
    assert list(stored) == list(Split.model_fields)
    for key, default in stored.items():
        assert tomllib.loads(f"x = {default}")["x"] == Split.model_fields[key].default


@by_page
def test_every_arm_has_a_plan(page: Path) -> None:
    found = {}
    for block in blocks(page, "toml"):
        experiment = tomllib.loads(block)
        WrittenKeys().store(experiment, page.name)
        for name, told in experiment["arms"].items():
            arm = make_arm(**told)
            plan = arm.split and arm.split.plan(model(arm.model), arm.world_size)
            found[name] = plan and str(plan.mesh)
    assert found == {
        "by-layer": "1 × 2 × 1",
        "inside": "1 × 1 × 2",
        "whole": None,
        "backwards": "1 × 2 × 1",
        "cube": "2 × 2 × 2",
        "impatient": "1 × 3 × 1",
        "devices": "1 × 1 × 1",
        "replicas": "2 × 1 × 1",
        "server": "1 × 2 × 1",
    }


@by_page
def test_names_of_schedules_and_of_columns(page: Path) -> None:
    text = page.read_text("utf-8")
    head = {"split.md": "| schedule |", "split.zh.md": "| 调度 |"}[page.name]
    assert [row[0].strip("`") for row in table(page, head)] == list(SCHEDULES)
    head = {"split.md": "| column |", "split.zh.md": "| 列 |"}[page.name]
    rows = table(page, head)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row[0])] == list(COLUMNS)
    assert re.findall(r"`(\w+)`", rows[1][1]) == list(KINDS)
    assert all(f"{number} `{kind}`" in text for number, kind in enumerate(KINDS))


@by_page
def test_commands_print_what_the_page_shows(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dualml.interface.cli.app import app

    monkeypatch.setenv("COLUMNS", "100")
    examples = [b for b in blocks(page, "text") if b.startswith("$ dualml ")]
    assert len(examples) == 5
    for example in examples:
        words, _, shown = example.removeprefix("$ dualml ").partition("\n")
        app(words.split(), standalone_mode=False)
        printed = capsys.readouterr().out.rstrip().splitlines()
        assert [line.rstrip() for line in printed] == shown.splitlines(), words


@by_page
def test_the_crossed_schedule_is_refused_in_these_words(page: Path) -> None:
    (text,) = [b for b in blocks(page, "text") if "1F1 1F0" in b]
    grid = Grid.read(text)
    assert find_deadlock(grid.programs(), grid.owners)
    with pytest.raises(UserError) as refused:
        validate(grid)
    assert f"dualml: crossed.txt: {refused.value}\n" in blocks(page, "text")


def test_the_script_is_the_same_on_both_pages() -> None:
    (english,), (chinese,) = (blocks(page, "python") for page in PAGES)
    assert english == chinese


@by_page
def test_the_script_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    (script,) = blocks(page, "python")
    (tmp_path / "by_layer.py").write_text(script, "utf-8")
    done = subprocess.run(
        [sys.executable, "by_layer.py", "numpy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout in blocks(page, "text")


#: Settings of `Split`, ranks, model, and incompatible settings, in the order of the table.
WRONG: list[dict[str, Any]] = [
    {"cut": ["fc9"]},
    {"cut": ["attention"], "model": "vit"},
    {"stages": 99},
    {"stages": 2, "cut": ["fc2", "fc3"]},
    {"data": 2, "ranks": 3},
    {"place": [0, 0]},
    {"grid": [["0F0", "0B0", "0F1", "0B1"], ["1F1", "1F0", "1B0", "1B1"]], "micro_batches": 2},
    {"grid": [["0F0", "0B0"], ["1F0", "1B0"]]},
    {"stages": 4, "schedule": "interleaved", "micro_batches": 3},
    {"place": [0, 0, 1, 1], "schedule": "interleaved"},
    {"tensor": 5, "model": "vit", "ranks": 5},
    {"tensor": 2, "layers": {"fc1": "row"}},
    {"tensor": 2, "layers": {"tanh1": "column"}},
    {"layers": {"fc1": "column"}},
    {"trainers": 2, "place": [0, 1, 0], "micro_batches": 3, "ranks": 3},
    {"trainers": 2, "place": [0, 1, 0], "micro_batches": 2},
    {"arrival": "asynchronous"},
    {"engine": "rpc", "tensor": 2},
    {"engine": "rpc", "schedule": "1f1b", "micro_batches": 4},
    {"engine": "rpc", "stages": 4},
    {"engine": "devices", "devices": ["cpu:0"], "ranks": 1},
    {"engine": "devices", "devices": ["cpu:0", "tpu:1"], "ranks": 1},
    {"engine": "devices", "devices": ["cpu:0", "cpu:1"]},
    {"engine": "devices", "devices": ["cpu:0", "cpu:1"], "ranks": 1, "model": "gpt"},
    {"ranks": 1},
    {"arm": {"partition": {"name": "contiguous"}}},
    {"arm": {"batch_size": 0}},
    {
        "trainers": 2,
        "micro_batches": 2,
        "arrival": "asynchronous",
        "ranks": 3,
        "arm": {"precision": "fp16"},
    },
]


def plan(wrong: dict[str, Any]) -> None:
    settings = dict(wrong)
    ranks, spec = settings.pop("ranks", 2), model(settings.pop("model", "deep_mlp"))
    more = {"optimizer": {"name": "sgd", "lr": 0.1}, **settings.pop("arm", {})}
    arm = make_arm(world_size=ranks, split=Split(**settings), **more)
    assert arm.split is not None
    arm.split.plan(spec, ranks)


@by_page
def test_the_table_of_errors_quotes_what_is_said(page: Path) -> None:
    quoted = [row[0].strip("`") for row in table(page, ERRORS[page.name])]
    for wrong, words in zip(WRONG, quoted, strict=True):
        with pytest.raises((UserError, ValueError)) as refused:
            plan(wrong)
        assert words in str(refused.value)
