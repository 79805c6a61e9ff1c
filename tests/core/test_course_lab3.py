"""The exercises of Lab 3, without a framework: rules, properties, catalogue, messages, pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dualml.common.words import LANGUAGES, load_messages
from dualml.course import drive_lab3
from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import check
from dualml.course.exercise import RIGHT, Answer, ExerciseCall, Requirement
from dualml.course.judge import WIDER, agrees, judge
from dualml.course.lab3.chance import chi_square, mean_bound, share_variance, square_sum_moments
from dualml.course.lab3.partitioning import UNUSABLE, function_requirements
from dualml.course.lab3.rank_optimizer import WEIGHTS
from dualml.course.lab3.rules import loss_and_gradient
from dualml.course.lab3.samplers import sampler_requirements
from dualml.course.lab3.skew import skew_requirements
from dualml.course.lab3.training import (
    SAMPLES,
    SAMPLES_CHANGED,
    UpdateRequirement,
    training_requirements,
)
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_page, read_skeleton, read_solution, read_translations
from dualml.parallel.partition import DirichletLabels, RandomPartition, RandomSampling

PARTITION = find_exercise("partition")[1]
TRAINING = training_requirements()
ALL = [*function_requirements(), *skew_requirements(), *sampler_requirements(), *TRAINING]
FLAGS = {flag.partition("#")[0] for r in ALL for flag in (*r.flags, *(m for _, m in r.errors))} | {
    *UNUSABLE,
    SAMPLES_CHANGED,
}
SHOWN = [(r, flag) for r in TRAINING for flag in r.flags]


def drawn(seed: int = 5) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- the rules of training ------------------------------------------------------------------------


def one_node(call: ExerciseCall) -> list[Mapping[str, Any]]:
    """Return the parameters after each update of one node that has all ranks' samples."""
    whole: dict[str, Any] = dict(call.arrays[0])
    for step in range(1, call.options["steps"] + 1):
        for name in ("x", "y"):
            parts = [own[f"{name}/{step}"] for own in call.arrays]
            whole[f"{name}/{step}"] = np.concatenate(parts)
    alone = ExerciseCall(call.kind, call.target, call.options, [whole])
    return UpdateRequirement("one", "train_step", loss=call.options["loss"]).expected(alone)


@pytest.mark.parametrize("requirement", TRAINING[1:], ids=lambda r: r.name)
def test_the_ranks_do_what_one_node_does(requirement: Requirement) -> None:
    for call in requirement.calls(drawn()):
        (alone,) = one_node(call)
        for own in requirement.expected(call):
            assert own.keys() == alone.keys()
            for key, a in own.items():
                if key.partition("/")[2] in SAMPLES:
                    continue
                np.testing.assert_allclose(a, alone[key], rtol=1e-12, atol=1e-12)


def test_the_gradient_is_that_of_the_loss() -> None:
    call = TRAINING[1].calls(drawn())[0]
    own = {key: a.astype(np.float64) for key, a in call.arrays[0].items()}
    weights = {name: own[f"p/{name}"] for name in WEIGHTS}
    given = own["p/shift"], own["x/1"], own["y/1"]
    _, gradient = loss_and_gradient(weights, *given)
    for name, w in weights.items():
        for index in np.ndindex(w.shape):
            ends = []
            for sign in (1, -1):
                moved = w.copy()
                moved[index] += sign * 1e-6
                ends.append(loss_and_gradient({**weights, name: moved}, *given)[0])
            assert gradient[name][index] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_an_empty_rank_and_an_even_one_are_among_the_calls() -> None:
    sizes = {
        r.name: [
            [len(own[f"y/{step}"]) for own in call.arrays]
            for call in r.calls(drawn())
            for step in (1, 2, 3)
        ]
        for r in TRAINING[1:]
    }
    assert all(len(set(s)) == 1 for s in sizes["train.even"])
    assert all(len(set(s)) == len(s) and min(s) > 0 for s in sizes["train.uneven"])
    assert all(s.count(0) == 1 for s in sizes["train.empty"])
    ranks = {call.ranks for r in TRAINING for call in r.calls(drawn())}
    assert ranks == {1, 2, 3, 4}


@pytest.mark.parametrize(("requirement", "flag"), SHOWN, ids=lambda v: getattr(v, "name", v))
def test_a_mistake_shows_where_it_is_looked_for(requirement: Requirement, flag: str) -> None:
    for seed in (5, 6, 7):
        assert any(
            not agrees(
                requirement.expected(call, frozenset({flag})),
                requirement.expected(call, RIGHT),
                requirement.tolerance(call, RIGHT),
            )
            for call in requirement.calls(drawn(seed))
        )


@pytest.mark.parametrize("target", ["same_start", "train_step"])
def test_no_two_mistakes_look_alike(target: str) -> None:
    calls = [(r, call) for r in TRAINING if r.target == target for call in r.calls(drawn())]
    flags = list(dict.fromkeys(flag for r, _ in calls for flag in r.flags))

    def result_with(flag: str) -> NDArray[np.float64]:
        """Return all numbers of all calls, in units of their tolerances."""
        units = []
        for (r, call), most in zip(calls, tolerances, strict=True):
            for own in r.expected(call, frozenset({flag} if flag else ())):
                units += [np.ravel(a) / (WIDER * most) for a in own.values()]
        return np.nan_to_num(np.concatenate(units), nan=1e9, posinf=1e9, neginf=-1e9)

    tolerances = [max(map(float, r.tolerance(call)[0].values())) for r, call in calls]
    looks = {flag: result_with(flag) for flag in ("", *flags)}
    for one, other in combinations(looks, 2):
        assert np.abs(looks[one] - looks[other]).max() > 1, (one, other)


# --- what is dealt --------------------------------------------------------------------------------


class ReferencePartitions:
    """`dualml.parallel.partition`'s rules in place of a student's functions."""

    @staticmethod
    def random_sampling(n: int, ranks: int, rank: int, seed: int, epoch: int) -> Any:
        return RandomSampling().partition(n, ranks, seed, epoch)[rank]

    @staticmethod
    def random_partition(n: int, ranks: int, rank: int, seed: int, epoch: int) -> Any:
        return RandomPartition().partition(n, ranks, seed, epoch)[rank]

    @staticmethod
    def label_skew(labels: Any, ranks: int, alpha: float, seed: int) -> Any:
        return DirichletLabels(alpha=alpha, least=0).partition(labels, ranks, seed)


def module(text: str) -> ModuleType:
    made = ModuleType("submitted")
    exec(compile(text, "submitted", "exec"), made.__dict__)
    return made


def answered(requirement: Requirement, student: Any, seed: int) -> tuple[str, tuple[str, ...]]:
    """Return the verdict on the functions of a module, judged in this process."""
    calls = requirement.calls(drawn(seed))
    answers = [
        Answer([getattr(drive_lab3, c.kind)(student, c.target, c.options, c.arrays[0])])
        for c in calls
    ]
    judgement = judge(requirement, calls, answers)
    return judgement.status, judgement.mistakes


DEALING = [*function_requirements(), *skew_requirements()]
DEALT = [plant for plant in load_plants("lab3") if plant.file == "partition.py"]


@pytest.mark.parametrize("requirement", DEALING, ids=lambda r: r.name)
@pytest.mark.parametrize("seed", range(4))
def test_our_own_rules_and_the_solution_have_the_properties(
    requirement: Requirement, seed: int
) -> None:
    assert answered(requirement, ReferencePartitions, seed) == ("met", ())
    assert answered(requirement, module(read_solution(PARTITION)), seed) == ("met", ())


@pytest.mark.parametrize("plant", DEALT, ids=lambda p: p.title)
def test_what_is_planted_is_named_and_what_is_right_accepted(plant: Plant) -> None:
    student = module(plant.patch.apply(read_solution(PARTITION)))
    state = np.random.get_state()
    said = [answered(r, student, 11) for r in DEALING if r.target == plant.target]
    np.random.set_state(state)
    wrong = [mistakes for status, mistakes in said if status != "met"]
    assert set(wrong) == (set() if plant.right else {(plant.name,)})


class OrderedSampler:
    """A right sampler, but that its lists are made in `set_epoch` alone."""

    def __init__(self, rank: int, seed: int) -> None:
        self.rank, self.seed = rank, seed

    def set_epoch(self, epoch: int) -> None:
        whole = np.random.default_rng([self.seed]).permutation(98)
        part = np.array_split(whole, 4)[self.rank]
        self.own = np.random.default_rng([self.seed, self.rank, epoch]).permutation(part)

    def __len__(self) -> int:
        return len(np.array_split(np.arange(98), 4)[self.rank])

    def __iter__(self) -> Iterator[int]:
        return iter(self.own.tolist())


class ReadySampler(OrderedSampler):
    """The same, with the lists of epoch 0 at first."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, seed)
        self.set_epoch(0)


@pytest.mark.parametrize(
    ("made", "found"), [(OrderedSampler, ("sampler_unset",)), (ReadySampler, None)]
)
def test_the_first_epoch_of_a_sampler_need_not_be_set(made: Any, found: Any) -> None:
    requirement = next(r for r in sampler_requirements() if r.name == "sampler.again")
    (call,) = requirement.calls(drawn(3))
    options = {**call.options, "hyper": {**call.options["hyper"], "n": 98, "ranks": 4}}
    asks = [[rank, seed] for seed in (3, 4) for rank in range(4)]
    call = replace(call, options={**options, "asks": asks})
    arrays = drive_lab3.run_samplers(made, list, call.options)
    problem = requirement.problem(call, Answer([arrays]))
    assert (problem and problem[1]) == found


@pytest.mark.parametrize(
    "result",
    [
        lambda *_: 3,
        lambda *_: [],
        lambda *_: np.zeros((2, 2), int),
        lambda *_: [np.nan],
        lambda *_: [-1],
        lambda n, *_: [n + 5],
        lambda *_: [True, False],
    ],
)
def test_what_is_no_list_of_samples_is_refused(result: Any) -> None:
    student = ModuleType("submitted")
    for r in function_requirements():
        setattr(student, r.target, result)
    said = [answered(r, student, 2)[0] for r in function_requirements()]
    for target in ("sampling", "partition"):
        own = [
            s
            for s, r in zip(said, function_requirements(), strict=True)
            if r.name.startswith(target)
        ]
        assert "not met" in own


def test_what_is_no_list_of_parts_is_refused() -> None:
    student = ModuleType("submitted")
    for result in (
        lambda *_: [],
        lambda *_: [[]] * 4,
        lambda *_: [[0.5]] * 4,
        lambda labels, *_: [[len(labels)]] * 4,
    ):
        student.label_skew = result  # type: ignore[attr-defined]
        said = {r.name: answered(r, student, 2)[0] for r in skew_requirements()}
        assert said["skew.once"] == said["skew.shares"] == "not met"


def test_something_that_is_no_array_of_numbers_has_its_type_told() -> None:
    with pytest.raises(TypeError, match="str → array of integers"):
        drive_lab3.pack_lists(["abc"])


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "ranks"), [(0.1, 4), (1.0, 3), (100.0, 2)])
def test_moments_of_the_dirichlet_distribution(alpha: float, ranks: int) -> None:
    p = drawn().dirichlet([alpha] * ranks, size=200_000)
    squares = (p**2).sum(1)
    mean, variance = square_sum_moments(alpha, ranks)
    assert squares.mean() == pytest.approx(mean, abs=5e-3)
    assert squares.var() == pytest.approx(variance, rel=0.05)
    assert p[:, 0].var() == pytest.approx(share_variance(alpha, ranks), rel=0.05)


def test_bounds_hold_and_are_not_far_away() -> None:
    p = drawn().dirichlet([1.0] * 4, size=(400, 600))
    means = (p**2).sum(2).mean(1)
    mean, variance = square_sum_moments(1.0, 4)
    most = mean_bound(variance, 600)
    assert np.abs(means - mean).max() < most < 12 * means.std()


def test_chi_square_of_draws_and_of_parts() -> None:
    draw = drawn()
    draws = [
        chi_square(np.bincount(draw.integers(20, size=2000), minlength=20)) for _ in range(400)
    ]
    parts = []
    for _ in range(400):
        chosen = [draw.permutation(20)[:7] for _ in range(300)]
        parts.append(chi_square(np.bincount(np.concatenate(chosen), minlength=20), 7 / 20, 300))
    for found in (draws, parts):  # χ² with 19 degrees of freedom
        assert np.mean(found) == pytest.approx(19, abs=1.5)
        assert np.var(found) == pytest.approx(38, rel=0.3)


# --- catalogue, words, pages ----------------------------------------------------------------------


def test_every_mistake_is_planted_and_every_plant_is_known() -> None:
    assert {p.name for p in load_plants("lab3") if not p.right} == FLAGS
    for task in ("sampler", "train"):
        of = {
            b: {p.name for p in load_plants("lab3") if p.file == f"{task}_{b}.py" and not p.right}
            for b in ("torch", "ms")
        }
        assert of["torch"] == of["ms"]
    assert len([p for p in load_plants("lab3") if p.right]) >= 9


@pytest.mark.parametrize("plant", load_plants("lab3"), ids=lambda p: p.title)
def test_a_plant_applies(plant: Plant) -> None:
    text = read_solution(find_exercise(plant.file)[1])
    changed = plant.patch.apply(text)
    assert changed != text
    compile(changed, plant.file, "exec")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_lab3")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{flag}.{depth}" for flag in FLAGS for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in ALL}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_tasks_name_every_requirement(lang: str) -> None:
    for task, requirements in (
        ("partition", DEALING),
        ("sampler", sampler_requirements()),
        ("train", TRAINING),
    ):
        text = read_page("lab3", task, lang)
        assert text.startswith("# ")
        for requirement in requirements:
            assert f"| `{requirement.name}` |" in text


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip() for one in load_lab("lab3").files for line in read_solution(one).splitlines()
    }
    assert read_translations("lab3").keys() <= there


def test_the_file_is_judged_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / PARTITION.name
    path.write_text(read_solution(PARTITION), "utf-8")
    assert check(PARTITION, path, 3).is_passed
    path.write_text(read_skeleton(PARTITION, "lab3", "zh"), "utf-8")
    assert {j.status for j in check(PARTITION, path, 3).judgements} == {"unwritten"}
    assert "submitted" not in sys.modules
