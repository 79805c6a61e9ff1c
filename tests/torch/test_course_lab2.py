"""The exercise of Lab 2 in PyTorch: our solution, some mistakes and variants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.exercise import Requirement
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("aggregate_torch")[1]
MISTAKES = (
    ("sum_unweighted", "by_all_reduce"),
    ("crossed", "by_all_reduce"),
    ("sum_root_only", "by_gather_broadcast"),
    ("average_without_own", "average_parameters"),
    ("ring_everything", "ring_all_reduce"),
    ("one_sided", "by_all_reduce"),
    ("one_sided", "ring_all_reduce"),
    ("ring_index", "ring_all_reduce"),
    ("measure_unsynchronised", "measure"),
    ("arguments_changed", "by_all_reduce"),
    ("chosen_ignored", "sum_gradients"),
    ("gather_none", "by_gather_broadcast"),
    ("ring_one_buffer", "ring_all_reduce"),
    ("ring_sends_original", "ring_all_reduce"),
)
VARIANTS = (
    ("one flat message", "by_all_reduce"),
    ("by way of rank 0", "average_parameters"),
    ("the other way around", "ring_all_reduce"),
    ("every n-th element", "ring_all_reduce"),
    ("least of many", "measure"),
)
PLANTS = {(p.name, p.target): p for p in load_plants("lab2") if p.file == EXERCISE.name}


def judged(
    plant: Plant | None, folder: Path, chosen: Callable[[Requirement], bool], seed: int = 5
) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(EXERCISE, path, seed, select=chosen)


@pytest.mark.parametrize("seed", [5, 6])
def test_our_solution_meets_everything(seed: int, tmp_path: Path) -> None:
    checked = judged(None, tmp_path, lambda requirement: True, seed)
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
