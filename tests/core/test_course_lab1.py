"""The exercises of Lab 1, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.optim import GD, SGD, Adam, AdamW, OptimizerSpec
from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import judge_requirements
from dualml.course.differences import distances
from dualml.course.exercise import Answer, ExerciseCall, Trouble
from dualml.course.judge import WIDER, judge
from dualml.course.lab1.hyperparameters import (
    draw_gd,
    draw_others,
    make_adam_draw,
    make_sgd_draw,
    settings_of,
)
from dualml.course.lab1.requirements import optimizer_requirements
from dualml.course.lab1.trajectory import trajectory
from dualml.course.lab1.unchanged import UnchangedRequirement
from dualml.course.lab1.updates import OptimizerRequirement
from dualml.course.labs import find_exercise, load_lab
from dualml.course.paper import split_report
from dualml.course.skeletons import STUDENT_MARKERS, make_skeleton
from dualml.course.workspace import read_page, read_solution, read_translations

ALL: dict[str, Any] = {
    r.name: r for backend in ("torch", "mindspore") for r in optimizer_requirements(backend)
}
#: Combinations of a rule's options that no requirement has.
TOGETHER = [
    OptimizerRequirement("gd together", "GD", draw_gd, rates=True, missing=True),
    OptimizerRequirement(
        "sgd together",
        "SGD",
        make_sgd_draw(momentum=True, decay=True, nesterov=True),
        rates=True,
        missing=True,
    ),
    OptimizerRequirement(
        "adam together", "Adam", make_adam_draw(decay=True), rates=True, missing=True
    ),
    OptimizerRequirement(
        "adamw together",
        "Adam",
        make_adam_draw(decay=True, decoupled=True),
        rates=True,
        missing=True,
    ),
    OptimizerRequirement(
        "adamw groups",
        "Adam",
        make_adam_draw(decay=True, decoupled=True, corrected=False),
        groups=draw_others,
    ),
]
SHOWN = [(name, flag) for name, r in ALL.items() for flag in r.flags]
#: Mistakes that change no number in some requirements that check for them: without decay and
#: momentum a gradient of zero moves nothing; one learning rate acts alike inside and outside of the
#: buffer; without momentum (1 − ηλ)θ − ηg is θ − η(g + λθ).
UNSEEN = {
    ("gd.missing", "missing_as_zero"),
    ("sgd.momentum", "lr_in_buffer"),
    ("sgd.nesterov", "lr_in_buffer"),
    ("sgd.all", "lr_in_buffer"),
    ("sgd.decay", "decay_decoupled"),
}
#: Requirements on numbers that follow from the updates.
UPDATED = [r for r in ALL.values() if not isinstance(r, UnchangedRequirement)]
SEEDS, LEAST = range(10), 9
DEPTHS = ("symptom", "place", "principle", "cause")
MISTAKES = {plant.name for plant in load_plants("lab1") if not plant.right}


@cache
def drawn(name: str) -> list[ExerciseCall]:
    """Return the calls of a requirement, for several seeds."""
    return [call for seed in SEEDS for call in ALL[name].calls(np.random.default_rng(seed))]


@cache
def numbers(name: str, *flags: str) -> tuple[Any, Any]:
    """Return the results of a rule with these mistakes, shape (calls, numbers), and the tolerances
    of an answer, of the same shape."""
    requirement = ALL[name]
    values, wider = [], []
    for call in drawn(name):
        (made,) = requirement.expected(call, frozenset(flags))
        (most,) = requirement.tolerance(call, frozenset(flags))
        values.append(np.concatenate([a.reshape(-1) for a in made.values()]))
        wider.append(np.concatenate([np.full(a.size, WIDER * most[k]) for k, a in made.items()]))
    return np.array(values), np.array(wider)


def count_distinguished(name: str, flag: str, *other: str) -> int:
    """Return the number of calls in which a mistake is distinguished from another one, or from a
    right answer."""
    (seen, _), (expected, most) = numbers(name, flag), numbers(name, *other)
    return int((distances(seen, expected) > most).any(axis=1).sum())


# --- rules ----------------------------------------------------------------------------------------


def our_rule(target: str, hyper: Mapping[str, Any]) -> OptimizerSpec:
    """Return the optimizer of `dualml.algorithms.optim` with these hyperparameters."""
    own = {**hyper}
    if target == "GD":
        return GD(**own)
    if target == "SGD":
        return SGD(**own)
    own["betas"] = tuple(own["betas"])
    return AdamW(**own) if own.pop("decoupled") else Adam(**own)


def by_our_rule(call: ExerciseCall) -> dict[str, Any]:
    """Return ``step/name`` (``3/w``) → the parameter after that update, each parameter updated
    alone."""
    arrays, options = call.arrays[0], call.options
    out = {}
    for name in (key[2:] for key in arrays if key.startswith("p/")):
        now = {name: arrays[f"p/{name}"].astype(np.float64)}
        plans = [p for p in options.get("optimizers", ()) if name in p["names"]]
        for plan in plans or [{"first": 1, "last": options["steps"]}]:
            rule = our_rule(call.target, settings_of(options, plan["first"], name))
            state, updates = rule.init(now), 0
            for step in range(plan["first"], plan["last"] + 1):
                rule = our_rule(call.target, settings_of(options, step, name))
                g = arrays.get(f"g/{step}/{name}")
                if g is not None:
                    updates += 1
                    gradient = {name: g.astype(np.float64)}
                    now, state = rule.update(now, gradient, state, updates, None)
                out[f"{step}/{name}"] = now[name]
    return out


@pytest.mark.parametrize("requirement", [*UPDATED, *TOGETHER], ids=lambda r: r.name)
def test_the_rules_without_mistakes_are_our_own(requirement: OptimizerRequirement) -> None:
    for seed in SEEDS:
        for call in requirement.calls(np.random.default_rng(seed)):
            (expected,) = requirement.expected(call)
            ours = by_our_rule(call)
            assert expected.keys() == ours.keys()
            for key, a in expected.items():
                np.testing.assert_allclose(a, ours[key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "flag"), SHOWN)
def test_a_mistake_shows_where_it_is_looked_for(name: str, flag: str) -> None:
    seen = count_distinguished(name, flag)
    assert seen == 0 if (name, flag) in UNSEEN else seen >= LEAST


def test_every_mistake_shows_somewhere() -> None:
    assert set(SHOWN) >= UNSEEN
    flags = {flag for _, flag in SHOWN}
    ended = {mistake for r in ALL.values() for _, mistake in r.errors}
    ended |= {r.otherwise for r in ALL.values() if r.otherwise}
    ended |= {name for r in ALL.values() for name in getattr(r, "revealed", ())}
    assert {flag for _, flag in set(SHOWN) - UNSEEN} == flags
    assert {flag.partition("#")[0] for flag in flags} | ended == MISTAKES


@pytest.mark.parametrize("name", ALL)
def test_no_two_mistakes_look_alike(name: str) -> None:
    for one, other in combinations(ALL[name].flags, 2):
        assert count_distinguished(name, one, other) >= LEAST, (one, other)
        assert count_distinguished(name, other, one) >= LEAST, (other, one)


@pytest.mark.parametrize("requirement", [*UPDATED, *TOGETHER], ids=lambda r: r.name)
def test_the_cheap_look_rules_out_no_mistake_that_explains(
    requirement: OptimizerRequirement,
) -> None:
    (call,) = requirement.calls(np.random.default_rng(3))
    for flag in requirement.flags:
        flags = frozenset({flag})
        single = trajectory(requirement.target, call.options, call.arrays[0], flags, np.float32)
        assert not requirement.rules_out(call, Answer([single]), flags), flag
    right = Answer(requirement.expected(call))
    if "sign" in requirement.flags:
        assert requirement.rules_out(call, right, frozenset({"sign"}))


@pytest.mark.parametrize(
    ("target", "flag", "elsewhere", "named"),
    [
        ("SGD", "momentum_ignored", "", ("compiled_apart",)),
        ("SGD", "momentum_ignored", "momentum_ignored", ("momentum_ignored",)),
        ("Adam", "compiled_constant", "", ("compiled_constant",)),
        ("Adam", "never_corrected", "", ("compiled_apart",)),
    ],
)
def test_what_only_the_graph_does_is_of_the_graph(
    target: str, flag: str, elsewhere: str, named: tuple[str, ...]
) -> None:
    """Numbers that are wrong in a compiled construct alone show what compilation made of it."""
    file = find_exercise("optim_ms")[1]
    wanted = [
        r for r in file.requirements if r.target == target and isinstance(r, OptimizerRequirement)
    ]

    def answer(requirement: OptimizerRequirement, call: ExerciseCall) -> Answer:
        wrong = flag if requirement.mode == "graph" else elsewhere
        return Answer(requirement.expected(call, frozenset({wrong} if wrong else ())))

    answered = [
        ((r, call), answer(r, call)) for r in wanted for call in r.calls(np.random.default_rng(3))
    ]
    own = replace(file, requirements=wanted)
    judged = {j.requirement.name: j for j in judge_requirements(own, wanted, answered, set())}
    assert judged[f"{target.lower()}.graph"].mistakes == named


#: Mistakes that act at one place, and where a requirement looks for it.
AT_ONE_PLACE = (
    ("sgd.decay", "decay_ignored", "dimension=1"),
    ("sgd.momentum", "dampened", "step=!0"),
    ("sgd.all", "nesterov_ignored", "tensor=-1"),
    ("adam.update", "first_uncorrected", "step=0"),
    ("adam.update", "sign", "row=0"),
    ("adam.decay", "decay_sign", "tensor=0"),
    ("adam.groups", "betas_swapped", "group=!0"),
    ("sgd.groups", "decay_ignored", "group=-1"),
)


@pytest.mark.parametrize(("name", "flag", "place"), AT_ONE_PLACE)
def test_a_mistake_at_one_place_is_named_with_it(name: str, flag: str, place: str) -> None:
    requirement = ALL[name]
    assert place in requirement.places
    calls = requirement.calls(np.random.default_rng(3))
    flags = frozenset({f"{flag}@{place}"})
    answers = [Answer(requirement.compute(call, flags, np.float32)) for call in calls]
    found = judge(requirement, calls, answers)
    assert found.mistakes == (flag,)
    assert found.places == {flag: place}


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("sgd.all", ("nesterov_ignored", "decay_sign")),
        ("sgd.momentum", ("dampened", "no_lr")),
        ("adam.update", ("step_late", "eps_inside")),
        ("adam.biased", ("sign", "betas_swapped")),
        ("adam.decoupled", ("decoupled_no_lr", "decoupled_twice")),
    ],
)
def test_two_mistakes_at_once_are_named(name: str, flags: tuple[str, ...]) -> None:
    requirement = ALL[name]
    calls = requirement.calls(np.random.default_rng(3))
    answers = [Answer(requirement.compute(call, frozenset(flags), np.float32)) for call in calls]
    assert set(judge(requirement, calls, answers).mistakes) == set(flags)


@pytest.mark.parametrize(
    ("changed", "mistake"),
    [
        (lambda key, a: a * 1.5 if key == "2/twin.grad" else a, "gradient_changed"),
        (lambda key, a: a * 0 if key == "1/beta.grad" else a, "gradient_cleared"),
        (lambda key, a: None if key.endswith(".grad") else a, "gradient_cleared"),
        (lambda key, a: a[::-1] if key == "parameters" else a, "parameters_changed"),
        (lambda key, a: a[:2] if key == "parameters" else a, "parameters_changed"),
        (lambda key, a: a / 2 if key == "lr" else a, "settings_changed"),
        (lambda key, a: a, ""),
    ],
)
@pytest.mark.parametrize("name", ["gd.unchanged", "sgd.unchanged", "adam.unchanged"])
def test_what_is_changed_of_what_was_given_is_named(name: str, changed: Any, mistake: str) -> None:
    requirement = ALL[name]
    calls = requirement.calls(np.random.default_rng(3))
    (given,) = requirement.compute(calls[0], frozenset(), np.float32)
    left = {key: changed(key, a) for key, a in given.items()}
    answer = Answer([{key: a for key, a in left.items() if a is not None}])
    assert judge(requirement, calls, [answer]).mistakes == tuple(filter(None, [mistake]))


@pytest.mark.parametrize(
    ("said", "mistake"),
    [
        (
            "TypeError: Failed calling Mul with \"Mul()(input=Tensor, other=<class 'mindspore."
            "nn.optim.optimizer._IteratorLearningRate'>)\".",
            "rate_not_looked_up",
        ),
        (
            "RuntimeError: output with shape [3] doesn't match the broadcast shape [2, 3]",
            "other_parameter",
        ),
    ],
)
def test_an_error_with_a_rate_or_another_parameter_is_named(said: str, mistake: str) -> None:
    (rates,) = (r for r in optimizer_requirements("mindspore") if r.name == "gd.rates")
    kind, _, message = said.partition(": ")
    assert rates.mistakes_of(Trouble(kind, message)) == (mistake,)


# --- catalogue, words, pages ----------------------------------------------------------------------


@pytest.mark.parametrize("plant", load_plants("lab1"), ids=lambda p: p.title)
def test_a_plant_applies_and_can_be_named(plant: Plant) -> None:
    exercise = find_exercise(plant.file)[1]
    changed = plant.patch.apply(read_solution(exercise))
    assert changed != read_solution(exercise)
    ast.parse(changed)
    about = [r for r in exercise.requirements if r.target == plant.target]
    assert about
    known = {m for r in about for m in (*r.flags, r.otherwise, *(e for _, e in r.errors))}
    known |= {m for r in about for m in getattr(r, "revealed", ())}
    assert plant.right or plant.name in known


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_lab1")
    wanted = {f"mistake.{mistake}.{depth}" for mistake in MISTAKES for depth in DEPTHS}
    assert own.keys() == wanted | {f"requirement.{name}" for name in ALL}
    assert all(text.strip() == text != "" for text in own.values())
    assert not any(brace in text for text in own.values() for brace in "{}")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_depth_of_hints_says_something_new(lang: str) -> None:
    own = load_messages(lang, "course_lab1")
    for mistake in MISTAKES:
        said = [own[f"mistake.{mistake}.{depth}"] for depth in DEPTHS]
        assert not any(a in b or b in a for a, b in combinations(said, 2)), mistake


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement_and_the_report_has_its_parts(lang: str) -> None:
    task = read_page("lab1", "optim", lang)
    assert task.startswith("# ")
    for name in ALL:
        assert f"`{name}`" in task
    title, _, sections = split_report(read_page("lab1", "report", lang))
    assert title
    assert [number for number, _, _ in sections] == ["1", "2", "3", "4", "5"]


def doc_lines(text: str) -> set[str]:
    """Return the lines of docstrings and comments, without indentation."""
    found = {line.strip() for line in text.splitlines() if line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            inside = text.splitlines()[first.lineno - 1 : first.end_lineno]
            found |= {line.strip() for line in inside}
    return found - {"", '"""', *STUDENT_MARKERS}


def test_every_line_of_the_skeletons_is_translated_and_none_is_left_over() -> None:
    there = set[str]().union(
        *(doc_lines(make_skeleton(read_solution(one))) for one in load_lab("lab1").files)
    )
    assert read_translations("lab1").keys() == there
    for chinese in read_translations("lab1").values():
        assert any("一" <= c <= "鿿" for c in chinese) or "：" in chinese, chinese
