"""The exercises of Lab 1, in MindSpore: our solutions, some mistakes and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_skeleton, read_solution

EXERCISE = find_exercise("optim_ms")[1]
OURS = [plant for plant in load_plants("lab1") if plant.file == EXERCISE.name]
MISTAKES = (
    ("GD", "nothing"),
    ("GD", "initial_lr"),
    ("SGD", "decay_exempt"),
    ("SGD", "nesterov_ignored"),
    ("Adam", "second_uncorrected"),
    ("Adam", "compiled_constant"),
    ("Adam", "compiled_apart"),
    ("GD", "other_parameter"),
    ("SGD", "gradient_changed"),
    ("SGD", "state_of_class"),
)
PLANTED = [plant for plant in OURS if (plant.target, plant.name) in MISTAKES]
VARIANTS = ("assign", "buffer assigned last", "one root")


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


@pytest.mark.parametrize("plant", PLANTED, ids=lambda p: f"{p.target} {p.name}")
def test_a_mistake_is_named(plant: Plant, tmp_path: Path) -> None:
    checked = judged(plant, 5, tmp_path)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert {j.mistakes for j in failed} == {(plant.name,)}


def test_a_count_of_parameters_is_named_until_it_runs_out_of_rates(tmp_path: Path) -> None:
    (plant,) = (p for p in OURS if p.name == "step_per_parameter")
    failed = {
        j.requirement.name: j for j in judged(plant, 5, tmp_path).judgements if j.status != "met"
    }
    with_rates = {"adam.rates", "adam.decoupled_rates", "adam.graph"}
    assert {name for name, j in failed.items() if j.trouble is not None} <= with_rates
    for name in ("adam.update", "adam.decay", "adam.decoupled", "adam.several"):
        assert failed[name].mistakes == (plant.name,)
    for name in with_rates:
        assert failed[name].mistakes == ("counter_ahead",)


def test_an_error_in_a_compiled_construct_has_its_line_and_no_log(tmp_path: Path) -> None:
    wrong = "ops.assign(v, self.beta1)"
    text = read_solution(EXERCISE)
    path = tmp_path / EXERCISE.name
    changed = text.replace("ops.assign(v, new_v)", wrong)
    changed = changed.replace(
        "super().__init__(learning_rate", "print('mine')\n        super().__init__(learning_rate"
    )
    path.write_text(changed, "utf-8")
    checked = check(EXERCISE, path, 3, select=lambda r: r.name == "adam.graph")
    (judgement,) = checked.judgements
    assert judgement.trouble is not None
    assert judgement.trouble.text == wrong
    assert set(checked.printed.split()) == {"mine"}
    path.write_text(read_skeleton(EXERCISE, "lab1", "en"), "utf-8")
    (judgement,) = check(EXERCISE, path, 3, select=lambda r: r.name == "gd.graph").judgements
    assert judgement.status == "unwritten"


def test_what_is_planted_is_there() -> None:
    assert {(plant.target, plant.name) for plant in PLANTED} == set(MISTAKES)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_right_in_another_way_is_accepted(name: str, tmp_path: Path) -> None:
    (plant,) = (plant for plant in OURS if plant.name == name)
    assert plant.right
    checked = judged(plant, 5, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
