"""The exercise on starting a group and agents in PyTorch: our solution and every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.source import examine
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("group_torch")[1]
PLANTS = [p for p in load_plants("lab2") if p.file == EXERCISE.name]


def judged(plant: Plant | None, folder: Path) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(EXERCISE, path, 5, select=lambda r: plant is None or r.target == plant.target)


@pytest.mark.parametrize(
    "plant", [None, *(p for p in PLANTS if p.right)], ids=lambda p: p.name if p else "ours"
)
def test_what_is_right_is_accepted(plant: Plant | None, tmp_path: Path) -> None:
    checked = judged(plant, tmp_path)
    assert checked.is_passed, checked.judgements


@pytest.mark.parametrize("plant", [p for p in PLANTS if not p.right], ids=lambda p: p.title)
def test_a_mistake_is_named(plant: Plant, tmp_path: Path) -> None:
    failed = [j for j in judged(plant, tmp_path).judgements if j.status != "met"]
    assert failed
    assert {j.mistakes for j in failed} == {(plant.name,)}


def test_the_framework_s_communication_is_for_this_exercise_alone(tmp_path: Path) -> None:
    """The framework's communication is allowed in this exercise only: the same lines are reported
    in another one's file."""
    path = tmp_path / "some.py"
    path.write_text("import torch.distributed as dist\n\ndist.init_process_group('gloo')\n")
    kinds = {p.kind for p in examine(path, EXERCISE)}
    assert "communication" not in kinds
    assert "communication" in {p.kind for p in examine(path, find_exercise("aggregate_torch")[1])}
