"""The exercise on a bottleneck, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.bottleneck import rules
from dualml.course.bottleneck.requirements import REQUIREMENTS
from dualml.course.bottleneck.splitting import SPLIT, SplitRequirement
from dualml.course.catalogue import load_plants
from dualml.course.drive_bottleneck import (
    SimulatedCommunicator,
    SimulatedNode,
    run_diagnoses,
    run_splits,
)
from dualml.course.exercise import RIGHT, Answer
from dualml.course.judge import agrees, judge
from dualml.course.lab3.rules import WEIGHTS, loss_and_gradient
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_page, read_solution, read_translations

FLAGS = list(dict.fromkeys(flag for r in REQUIREMENTS for flag in r.flags))
#: Mistakes that show in an error, or in the shape of the table.
OTHERS = ["bn_not_gathered", "bn_empty_leaves", "bn_empty_no_gradient"]
MISTAKES = [*dict.fromkeys(flag.partition("#")[0] for flag in FLAGS), *OTHERS]
COMPUTED = [r for r in REQUIREMENTS if not isinstance(r, SplitRequirement)]
CALLS = [(r, call) for r in COMPUTED for call in r.calls(np.random.default_rng(5))]


def split_evenly(n: int, seconds: Any) -> list[int]:
    """Share samples by largest remainders."""
    ideal = rules.ideal_sizes(n, seconds)
    sizes = np.floor(ideal).astype(int)
    for rank in np.argsort(sizes - ideal)[: n - int(sizes.sum())]:
        sizes[rank] += 1
    return [int(size) for size in sizes]


def test_mistakes_show_and_no_two_look_alike() -> None:
    for requirement in COMPUTED:
        calls = [call for r, call in CALLS if r is requirement]
        flags = ["", *requirement.flags]
        wanted = {f: frozenset({f} if f else ()) for f in flags}
        looks = {f: [requirement.expected(c, wanted[f]) for c in calls] for f in flags}
        for one, other in combinations(flags, 2):
            most = [requirement.tolerance(c, wanted[other]) for c in calls]
            every = zip(looks[one], looks[other], most, strict=True)
            assert not all(agrees(*each) for each in every), (requirement.name, one, other)


def test_nodes_wait_for_the_latest_of_them() -> None:
    class Group:
        rank, size = 0, 2

        @staticmethod
        def all_gather(x: float) -> list[float]:
            return [x, 7.5]

    number = {"compute": np.array([1.0, 2.0]), "transfer": np.array([0.5])}
    node = SimulatedNode({**number, "offset": np.array(100.0), "late": np.array(0.25)})
    node.compute()
    node.transfer()
    assert node.clock() == 101.75
    SimulatedCommunicator(Group(), node, float).barrier()
    assert node.clock() == 107.5
    node.compute()
    assert node.clock() == 109.5


def test_an_update_is_that_of_the_whole_batch() -> None:
    for requirement, call in CALLS:
        if call.kind != "balanced":
            continue
        own, lr = call.arrays[0], call.options["hyper"]["lr"]
        p = {name: own[f"p/{name}"].astype(np.float64) for name in WEIGHTS}
        for step in range(1, call.options["steps"] + 1):
            given = [own[k].astype(np.float64) for k in ("p/shift", f"x/{step}", f"y/{step}")]
            gradient = loss_and_gradient(p, *given)[1]
            p = {name: p[name] - lr * gradient[name] for name in WEIGHTS}
            for rank, right in enumerate(requirement.expected(call)):
                assert int(right[f"{step}/rows"]) == call.options["hyper"]["sizes"][rank]
                for name in WEIGHTS:
                    np.testing.assert_allclose(right[f"{step}/{name}"], p[name], atol=1e-12)


def test_a_slow_node_is_told_from_a_slow_link() -> None:
    table = np.array([[0.10, 0.03, 0.06], [0.16, 0.03, 0.0], [0.10, 0.03, 0.06]])
    assert rules.diagnose(table, RIGHT) == ("compute", 1)
    table[1] = 0.10, 0.09, 0.0
    assert rules.diagnose(table, RIGHT) == ("link", 1)
    table[1] = 0.11, 0.03, 0.0
    assert rules.diagnose(table, RIGHT) == ("none", -1)


@pytest.mark.parametrize("flag", ["", "bn_always", "bn_ratio"])
def test_a_diagnosis_is_judged(flag: str) -> None:
    requirement, call = next((r, c) for r, c in CALLS if c.kind == "diagnose")
    flags = frozenset({flag} if flag else ())
    answer = run_diagnoses(
        lambda times: rules.diagnose(np.array(times), flags), call.options, call.arrays[0]
    )
    judgement = judge(requirement, [call], [Answer([answer])])
    assert judgement.mistakes == ((flag,) if flag else ())
    with pytest.raises(TypeError, match="pair"):
        run_diagnoses(lambda times: "compute", call.options, call.arrays[0])


@pytest.mark.parametrize("flag", ["", *SPLIT])
def test_a_split_is_judged(flag: str) -> None:
    requirement = next(r for r in REQUIREMENTS if isinstance(r, SplitRequirement))
    (call,) = requirement.calls(np.random.default_rng(3))

    def split(n: int, seconds: Any) -> Any:
        if not flag:
            return split_evenly(n, seconds)
        if flag == "bn_split_inverse":
            return split_evenly(n, [1 / s for s in seconds])
        sizes = rules.mistaken_sizes(n, seconds, flag)
        return list(sizes) if flag == "bn_split_floats" else [int(size) for size in sizes]

    answer = run_splits(split, call.options, {})
    judgement = judge(requirement, [call], [Answer([answer])])
    assert judgement.status == ("not met" if flag else "met")
    assert judgement.mistakes == ((flag,) if flag else ())


def test_a_row_in_place_of_the_table_is_named() -> None:
    requirement, call = next((r, c) for r, c in CALLS if c.kind == "measure")
    rows = [{"times": own["times"][rank]} for rank, own in enumerate(requirement.expected(call))]
    assert judge(requirement, [call], [Answer(rows)]).mistakes == ("bn_not_gathered",)


def test_every_mistake_is_planted_in_both_frameworks() -> None:
    wanted = {(flag, one.name) for flag in MISTAKES for one in load_lab("bottleneck").files}
    assert {(p.name, p.file) for p in load_plants("bottleneck") if not p.right} == wanted
    for plant in load_plants("bottleneck"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_bottleneck")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{flag}.{depth}" for flag in MISTAKES for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("bottleneck", "bottleneck", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    files = load_lab("bottleneck").files
    there = {line.strip() for one in files for line in read_solution(one).splitlines()}
    assert read_translations("bottleneck").keys() <= there
