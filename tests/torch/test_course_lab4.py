"""The exercises of Lab 4 in PyTorch: our solution, some mistakes and variants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.exercise import Requirement
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("split_torch")[1]
MISTAKES = (
    ("stage_order_crossed", "train_step"),
    ("stage_waits", "train_step"),
    ("stage_one_buffer", "train_step"),
    ("argument_changed", "train_step"),
    ("row_input_sliced", "RowLinear"),
    ("column_gradient_local", "ColumnLinear"),
    ("too_many_sums", "ColumnLinear"),
    ("row_bias_every_rank", "RowLinear"),
)
VARIANTS = (
    ("backward at once", "train_step"),
    ("rows by chunk", "ColumnLinear"),
    ("bias on rank 0 alone", "RowLinear"),
)
PLANTS = {(p.name, p.target): p for p in load_plants("lab4") if p.file == EXERCISE.name}


def judged(plant: Plant | None, folder: Path, chosen: Callable[[Requirement], bool]) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(EXERCISE, path, 5, select=chosen)


def test_our_solution_meets_everything(tmp_path: Path) -> None:
    checked = judged(None, tmp_path, lambda requirement: True)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
    assert len(checked.judgements) == len(EXERCISE.requirements)


@pytest.mark.parametrize(("name", "target"), MISTAKES)
def test_a_mistake_is_named(name: str, target: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[name, target], tmp_path, lambda r: r.target == target)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert failed[0].mistakes == (name,)


@pytest.mark.parametrize(("name", "target"), VARIANTS)
def test_what_is_right_in_another_way_is_accepted(name: str, target: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[name, target], tmp_path, lambda r: r.target == target)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
