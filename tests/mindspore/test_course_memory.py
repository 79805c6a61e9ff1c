"""The exercise on ZeRO stage 1, in MindSpore: our solution, some mistakes and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("zero_ms")[1]
MISTAKES = (
    "summed",
    "gathered_backwards",
    "all_reduced",
    "not_gathered",
    "whole_state",
    "zero_gradient_changed",
)
VARIANTS = ("mean of the gradients first", "reduced by its option")
PLANTS = {p.name: p for p in load_plants("memory") if p.file == EXERCISE.name}


def judged(plant: Plant | None, seed: int, folder: Path) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(EXERCISE, path, seed)


@pytest.mark.parametrize("seed", [3, 11])
def test_our_solution_meets_everything(seed: int, tmp_path: Path) -> None:
    checked = judged(None, seed, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(name: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[name], 5, tmp_path)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert failed[0].mistakes == (name,)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_right_in_another_way_is_accepted(name: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[name], 5, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
