"""The exercise on starting a group in MindSpore: solution, mistakes, and the real scheduler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("group_ms")[1]
PLANTS = [p for p in load_plants("lab2") if p.file == EXERCISE.name]
SCHEDULER = "from mindspore import communication; communication.init()"
WORKER = (
    "import sys, group_ms; from mindspore import communication as c; rank, port = sys.argv[1:]; "
    "work = lambda: (c.get_rank(), c.get_group_size()); "
    "print('told', *group_ms.run_group(int(rank), 2, '127.0.0.1', int(port), work))"
)


def judged(plant: Plant | None, folder: Path) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(EXERCISE, path, 5)


@pytest.mark.parametrize(
    "plant", [None, *(p for p in PLANTS if p.right)], ids=lambda p: p.name if p else "ours"
)
def test_what_is_right_is_accepted(plant: Plant | None, tmp_path: Path) -> None:
    checked = judged(plant, tmp_path)
    assert checked.is_passed, checked.judgements


@pytest.mark.parametrize("plant", [p for p in PLANTS if not p.right], ids=lambda p: p.name)
def test_a_mistake_is_named(plant: Plant, tmp_path: Path) -> None:
    failed = [j for j in judged(plant, tmp_path).judgements if j.status != "met"]
    assert failed
    assert {j.mistakes for j in failed} == {(plant.name,)}


def test_our_solution_joins_the_real_scheduler(tmp_path: Path) -> None:
    """Our solution joins the real scheduler, which the judge replaces: two ranks and a scheduler,
    started as on the page."""
    (tmp_path / EXERCISE.name).write_text(read_solution(EXERCISE), "utf-8")
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    environ = {**os.environ, "MS_TOPO_TIMEOUT": "90", "PYTHONPATH": str(tmp_path)}
    cluster = {
        "MS_ROLE": "MS_SCHED",
        "MS_WORKER_NUM": "2",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": port,
    }
    options = {
        "cwd": tmp_path,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.DEVNULL,
        "text": True,
    }
    python = [sys.executable, "-c"]
    started = [subprocess.Popen([*python, SCHEDULER], env={**environ, **cluster}, **options)]
    try:
        workers = [
            subprocess.Popen([*python, WORKER, str(rank), port], env=environ, **options)
            for rank in (0, 1)
        ]
        started += workers
        said = [worker.communicate(timeout=150)[0] for worker in workers]
    finally:
        for process in started:
            process.kill()
            process.wait(10)
    assert [text.strip().splitlines()[-1] for text in said] == ["told 0 2", "told 1 2"]
