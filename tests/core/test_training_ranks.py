"""Every training starts its ranks by the same two steps, and no file of the core starts others."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from source_trees import parse_source

from dualml.backend import BackendInfo
from dualml.experiment.store.manifest import Options
from dualml.launch import training
from dualml.launch.process import Launch
from dualml.launch.training import (
    REPLAY,
    TRIALS,
    TrainingRanks,
    describe_process,
    share_cores,
    start_and_train,
)

CORE = Path(training.__file__).resolve().parents[1]
#: Prefix of the programs that run a rank of a training.
PROGRAMS = "dualml.runner.worker."
#: Files that name such a program: all but the second, whose program a launcher starts, start it
#: through `describe_process`.
NAMING = {"launch/training.py", "launch/launcher.py"}
#: Function that starts or watches processes → the files that call it. Those of `supervise` start
#: what trains no ranks: functions on ranks, two models side by side, and probes.
CALLERS = {
    "start_ranks": {"launch/supervise.py", "launch/training.py", "runner/run.py"},
    "watch_ranks": {"launch/supervise.py", "launch/training.py"},
    "train": {"launch/training.py", "runner/run.py"},
    "start_and_train": {"launch/external.py", "parity/finder/replays.py"},
    "supervise": {"launch/ranks.py", "parity/diffs/measure.py", "parity/models/side_processes.py"},
    "describe_process": {
        "launch/external.py",
        "parity/finder/replays.py",
        "runner/session/rank_group.py",
    },
}


def find_starts(tree: ast.AST) -> Iterator[str]:
    """Yield the functions of `CALLERS` that a file calls, and ``NAMING`` where it names a program
    of a rank in a string that is no docstring."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            is_plain = isinstance(node.func, ast.Name)
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in CALLERS and (is_plain or name != "train"):  # a model has a method `train`
                yield name
        text = str(node.value) if isinstance(node, ast.Constant) else ""
        if text.startswith(PROGRAMS) and id(node) not in docstrings:
            yield "NAMING"


def test_no_other_file_starts_ranks_of_a_training() -> None:
    found: dict[str, set[str]] = {"NAMING": set(), **{name: set() for name in CALLERS}}
    for path in sorted(CORE.rglob("*.py")):
        for start in find_starts(parse_source(path.read_text("utf-8"))):
            found[start].add(path.relative_to(CORE).as_posix())
    assert found == {"NAMING": NAMING, **CALLERS}


def test_a_start_of_its_own_is_noticed() -> None:
    planted = """
def work():
    with start_ranks([Launch(python_argv("-m", "dualml.runner.worker.main"), {}, log)]) as ranks:
        return supervise.watch_ranks(ranks)
"""
    assert sorted(find_starts(ast.parse(planted))) == ["NAMING", "start_ranks", "watch_ranks"]


def make_info(ranks: Any = "processes") -> BackendInfo:
    def environ(threads: int) -> dict[str, str]:
        return {"THREADS": str(threads)}

    return BackendInfo("b", "b", "pip install b", "b:B", environ, ranks)


@pytest.mark.parametrize(
    ("size", "cores", "asked", "ranks", "external", "expected"),
    [
        (1, 0, False, "processes", False, (4, 0, "known")),
        (2, 0, False, "processes", False, (2, 2, "2")),
        (2, 0, True, "processes", False, (4, 4, "known")),
        (8, 0, False, "processes", False, (1, 1, "1")),
        (2, 0, False, "processes", True, (2, 0, "2")),
        (2, 0, False, "threads", False, (4, 0, "known")),
        (2, 3, False, "processes", False, (3, 3, "3")),
        (1, 3, False, "none", False, (3, 3, "3")),
    ],
)
def test_ranks_share_the_cores_of_one(
    size: int, cores: int, asked: bool, ranks: str, external: bool, expected: tuple[int, int, str]
) -> None:
    arm: Any = SimpleNamespace(world_size=size, cores=cores)
    options = Options(threads=4, threads_asked=asked)
    share = share_cores(arm, make_info(ranks), options, {"THREADS": "known"}, is_external=external)
    assert (share.threads, share.cores, share.environ["THREADS"]) == expected


def test_a_process_runs_its_rank_of_all_folders(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[0].mkdir()
    for program in (TRIALS, REPLAY):
        launch = describe_process(program, 3, folders, {"X": "1"}, preload=["json"], cores=2)
        assert list(launch.command)[-5:] == ["-m", program, "3", *map(str, folders)]
        assert launch.log.parent == folders[0]
        assert "3" in launch.log.name
        assert (launch.environ, launch.preload, launch.cores) == ({"X": "1"}, ["json"], 2)


RANK = """
import os, sys
def say(line):
    os.write(1, (line + chr(10)).encode())
say('{"event": "step", "done": 1}')
say('{"event": "result", "status": "ok"}')
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("codes", [(0, 0), (0, 3)])
def test_training_starts_all_ranks_and_returns_how_they_ended(
    codes: tuple[int, ...], tmp_path: Path
) -> None:
    heard = []
    processes = [
        Launch([sys.executable, "-c", RANK, str(code)], {}, tmp_path / f"log{rank}")
        for rank, code in enumerate(codes)
    ]
    ranks = TrainingRanks(
        processes=processes,
        limit=60,
        silence=60,
        on_event=lambda rank, event: heard.append((rank, event["event"])),
    )
    ended = start_and_train(ranks)
    assert sorted(heard) == [(0, "step"), (1, "step")]
    assert ended.code == max(codes)
    assert ended.rank == (1 if any(codes) else 0)
    assert ended.results.keys() == {0, 1}


def test_ranks_that_nobody_needs_are_ended(tmp_path: Path) -> None:
    process = Launch([sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path / "log")
    ranks = TrainingRanks(processes=[process], limit=60, silence=60, is_abandoned=lambda: True)
    assert start_and_train(ranks).code == 0
