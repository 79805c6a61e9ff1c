"""The exercises of Lab 1, in PyTorch: our solutions, some mistakes and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("optim_torch")[1]
MISTAKES = (
    "GD nothing",
    "SGD lr_in_buffer",
    "SGD decay_decoupled",
    "SGD shared_state",
    "Adam eps_before_correction",
    "Adam corrected_kept",
    "GD gradient_cleared",
)
#: Mistakes that have further effects in other exercises.
SOMEWHERE = (
    ("SGD aliased", "sgd.momentum"),
    ("Adam step_global", "adam.missing"),
    ("SGD state_of_class", "sgd.several"),
    ("SGD gradient_changed", "sgd.unchanged"),
)
ENDED = ("GD missing_as_error",)
VARIANTS = ("GD foreach", "SGD buffer is the first gradient", "Adam powers kept in the state")
PLANTS = {f"{p.target} {p.name}": p for p in load_plants("lab1") if p.file == EXERCISE.name}


def judged(plant: Plant | None, seed: int, folder: Path) -> CheckResult:
    text = read_solution(EXERCISE)
    path = folder / EXERCISE.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    target = None if plant is None else plant.target
    return check(EXERCISE, path, seed, select=lambda r: target in (None, r.target))


@pytest.mark.parametrize("seed", [3, 11])
def test_our_solutions_meet_everything(seed: int, tmp_path: Path) -> None:
    checked = judged(None, seed, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
    assert {j.requirement.target for j in checked.judgements} == {"GD", "SGD", "Adam"}


@pytest.mark.parametrize("title", [*MISTAKES, *ENDED])
def test_a_mistake_is_named(title: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[title], 5, tmp_path)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert {j.mistakes for j in failed} == {(PLANTS[title].name,)}
    assert all((j.trouble is not None) is (title in ENDED) for j in failed)


@pytest.mark.parametrize(("title", "name"), SOMEWHERE)
def test_a_mistake_is_named_where_it_is_looked_for(title: str, name: str, tmp_path: Path) -> None:
    checked = judged(PLANTS[title], 5, tmp_path)
    (about,) = (j for j in checked.judgements if j.requirement.name == name)
    assert (about.status, about.mistakes) == ("not met", (PLANTS[title].name,))


@pytest.mark.parametrize("title", VARIANTS)
def test_what_is_right_in_another_way_is_accepted(title: str, tmp_path: Path) -> None:
    plant = PLANTS[title]
    assert plant.right
    checked = judged(plant, 5, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


def test_the_numbers_that_a_wrong_one_is_made_of(tmp_path: Path) -> None:
    checked = judged(PLANTS["SGD nesterov_twice"], 5, tmp_path)
    (nesterov,) = (j for j in checked.judgements if j.requirement.name == "sgd.nesterov")
    assert nesterov.difference is not None
    assert nesterov.difference.key.startswith("2/")  # b₁ = g₁: the first update is right
    assert {"θ_1", "g_1", "g_2", "momentum", "lr"} <= nesterov.inputs.keys()
