"""The exercise on ZeRO stage 1, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.algorithms.optim import Adam
from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.exercise import Answer
from dualml.course.labs import find_exercise, load_lab
from dualml.course.memory.requirements import REQUIREMENTS
from dualml.course.workspace import read_page, read_solution, read_translations

#: Mistakes that change numbers; the others show in the length of the state and in the gradient.
FLAGS = list(dict.fromkeys(flag for r in REQUIREMENTS for flag in r.flags))
MISTAKES = [*FLAGS, "whole_state", "zero_gradient_changed"]
CALLS = [(r, call) for r in REQUIREMENTS for call in r.calls(np.random.default_rng(5))]


def adam(call: Any) -> tuple[list[Any], dict[str, Any]]:
    """Run Adam with the mean gradient; return parameters after each update, and its state."""
    hyper = call.options["hyper"]
    rule = Adam(lr=hyper["lr"], betas=tuple(hyper["betas"]), eps=hyper["eps"])
    now = {"p": call.arrays[0]["p"].astype(np.float64)}
    state, seen = rule.init(now), []
    for step in range(1, call.options["steps"] + 1):
        mean = np.mean([a[f"g/{step}"].astype(np.float64) for a in call.arrays], axis=0)
        now, state = rule.update(now, {"p": mean}, state, step, None)
        seen.append(now["p"])
    return seen, {"m": state["exp_avg"]["p"], "v": state["exp_avg_sq"]["p"]}


def test_the_rule_is_that_of_our_own_adam() -> None:
    for requirement, call in CALLS:
        seen, state = adam(call)
        for rank, right in enumerate(requirement.expected(call)):
            for key, array in right.items():
                if key.endswith("/parameters"):
                    np.testing.assert_allclose(array, seen[int(key.partition("/")[0]) - 1])
                elif key in ("m", "v"):
                    part = np.split(state[key], call.ranks)[rank]
                    np.testing.assert_allclose(array, part)


def test_what_is_sent_is_a_whole_and_a_part() -> None:
    call = REQUIREMENTS[-1].calls(np.random.default_rng(5))[1]
    n, length = call.ranks, len(call.arrays[0]["p"])
    for sent in REQUIREMENTS[-1].expected(call):
        assert {key: list(e) for key, e in sent.items()} == {
            "sent/reduce_scatter": [length],
            "sent/all_gather": [length / n],
            "sent/all_reduce": [],
            "sent/broadcast": [],
        }


def test_mistakes_show_and_no_two_look_alike() -> None:
    assert find_look_alikes(CALLS, FLAGS) == []


def test_a_whole_state_is_seen_by_its_length() -> None:
    requirement, call = next((r, c) for r, c in CALLS if r.name == "zero.state")
    _, state = adam(call)
    found = requirement.problem(call, Answer([state] * call.ranks))
    assert found is not None
    assert found[1] == ("whole_state",)
    right = requirement.expected(call)
    assert requirement.problem(call, Answer(right)) is None
    short = [{key: a[:1] for key, a in arrays.items()} for arrays in right]
    found = requirement.problem(call, Answer(short))
    assert found is not None
    assert found[1] == ()


def test_a_changed_gradient_is_seen_and_a_kept_one_is_not() -> None:
    requirement, call = next((r, c) for r, c in CALLS if r.name == "zero.kept")
    kept = requirement.expected(call)
    assert requirement.problem(call, Answer(kept)) is None
    changed = [dict(own) for own in kept]
    changed[1]["2/gradient"] = changed[1]["2/gradient"] / 2
    found = requirement.problem(call, Answer(changed))
    assert found is not None
    assert (found[0].rank, found[0].key, found[1]) == (1, "2/gradient", ("zero_gradient_changed",))


def test_every_mistake_is_planted_in_both_frameworks() -> None:
    wanted = {(name, one.name) for name in MISTAKES for one in load_lab("memory").files}
    assert {(p.name, p.file) for p in load_plants("memory") if not p.right} == wanted
    for plant in load_plants("memory"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_memory")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{name}.{depth}" for name in MISTAKES for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("memory", "zero", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip() for one in load_lab("memory").files for line in read_solution(one).splitlines()
    }
    assert read_translations("memory").keys() <= there
