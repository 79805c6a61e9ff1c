"""The exercises of Lab 3, in MindSpore: our solutions, some mistakes and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.exercise import ExerciseFile
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

SAMPLER, TRAIN = find_exercise("sampler_ms")[1], find_exercise("train_ms")[1]
MISTAKES = (
    "sampler_exhausted",
    "sampler_goes_on",
    "update_unweighted",
    "update_parameters",
    "update_loss_nan",
    "start_buffers_left",
)
ENDED = ("start_own_root", "start_root_alone", "update_empty_leaves")
VARIANTS = (
    "every ranks-th of a permutation, drawn once",
    "all gradients as one",
    "the share in the loss",
)
PLANTS = {p.name: p for p in load_plants("lab3") if p.file in (SAMPLER.name, TRAIN.name)}


def judged(exercise: ExerciseFile, plant: Plant | None, seed: int, folder: Path) -> CheckResult:
    text = read_solution(exercise)
    path = folder / exercise.name
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    target = None if plant is None else plant.target
    return check(exercise, path, seed, select=lambda r: target in (None, r.target))


@pytest.mark.parametrize("seed", [3, 11])
@pytest.mark.parametrize("exercise", [SAMPLER, TRAIN], ids=lambda e: e.name)
def test_our_solution_meets_everything(exercise: ExerciseFile, seed: int, tmp_path: Path) -> None:
    checked = judged(exercise, None, seed, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


@pytest.mark.parametrize("name", [*MISTAKES, *ENDED])
def test_a_mistake_is_named(name: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    checked = judged(find_exercise(plant.file)[1], plant, 5, tmp_path)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert {j.mistakes for j in failed} == {(name,)}
    assert all((j.trouble is not None) is (name in ENDED) for j in failed)


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_right_in_another_way_is_accepted(name: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    checked = judged(find_exercise(plant.file)[1], plant, 5, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


def test_the_numbers_that_a_wrong_one_is_made_of(tmp_path: Path) -> None:
    checked = judged(TRAIN, PLANTS["update_unweighted"], 5, tmp_path)
    (uneven,) = (j for j in checked.judgements if j.requirement.name == "train.uneven")
    assert uneven.difference is not None
    assert uneven.call is not None
    made_of, ranks = uneven.inputs, range(uneven.call.ranks)
    assert uneven.difference.key.startswith("1/")
    whole = sum(made_of[f"n_{r}"] for r in ranks)
    mean = sum(made_of[f"n_{r}"] * made_of[f"g_{r}"] for r in ranks) / whole
    right = made_of["θ_0"] - uneven.call.options["hyper"]["lr"] * mean
    assert uneven.difference.expected == pytest.approx(right, abs=1e-9)


def test_a_sampler_may_use_the_partition_beside_it(tmp_path: Path) -> None:
    partition = find_exercise("partition")[1]
    (tmp_path / partition.name).write_text(read_solution(partition), "utf-8")
    own = "own = np.random.default_rng([self.seed, self.rank, self.epoch + 1])"
    text = read_solution(SAMPLER)
    begin, end = text.index(f"        {own}"), text.index("        return iter(")
    code = """        from partition import random_partition, random_sampling

        function = random_sampling if self.kind == "sampling" else random_partition
        samples = function(self.n, self.ranks, self.rank, self.seed, self.epoch)
"""
    path = tmp_path / SAMPLER.name
    path.write_text(text[:begin] + code + text[end:], "utf-8")
    assert check(SAMPLER, path, 5).is_passed
