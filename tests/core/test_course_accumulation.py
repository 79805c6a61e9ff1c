"""The exercise on accumulated gradients, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.accumulation.model import IGNORED, WEIGHTS, norm_of, token_loss
from dualml.course.accumulation.requirements import REQUIREMENTS
from dualml.course.catalogue import load_plants
from dualml.course.exercise import Answer
from dualml.course.judge import agrees, judge
from dualml.course.labs import find_exercise, load_lab
from dualml.course.workspace import read_page, read_solution, read_translations

FLAGS = list(dict.fromkeys(flag for r in REQUIREMENTS for flag in r.flags))
#: Mistakes that show in an error or in what is sent.
OTHERS = ["accum_empty_skipped", "accum_sent_each"]
MISTAKES = [*dict.fromkeys(flag.partition("#")[0] for flag in FLAGS), *OTHERS]
#: Mistakes that PyTorch alone makes possible, whose parameters hold gradients.
TORCH_ONLY = {"accum_remainder_leaks", "accum_stale"}
CALLS = [(r, call) for r in REQUIREMENTS for call in r.calls(np.random.default_rng(5))]


def one_big_batch(call: Any) -> tuple[list[dict[str, Any]], list[float]]:
    """Return parameters and loss of each update by the gradient of one concatenated batch."""
    h = call.options["hyper"]
    p = {name: call.arrays[0][f"p/{name}"].astype(np.float64) for name in WEIGHTS}
    seen, losses = [], []
    for epoch in range(call.options["epochs"]):
        numbers = list(range(1, call.options["micro_batches"] + 1))
        for first in range(0, len(numbers), h["k"]):
            keys = [(a, i) for i in numbers[first : first + h["k"]] for a in call.arrays]
            x = np.concatenate([a[f"x/{epoch}/{i}"] for a, i in keys]).astype(np.float64)
            y = np.concatenate([a[f"y/{epoch}/{i}"] for a, i in keys])
            loss, gradient, n = token_loss(p, x, y)
            mean = {name: g / n for name, g in gradient.items()}
            factor = min(1.0, h["max_norm"] / norm_of(mean))
            p = {name: p[name] - h["lr"] * factor * mean[name] for name in WEIGHTS}
            seen.append(p)
            losses.append(loss / n)
    return seen, losses


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    draw = np.random.default_rng(2)
    p = {"w": draw.normal(size=(3, 4)), "b": draw.normal(size=4)}
    x, y = draw.normal(size=(2, 4, 3)), np.array([[0, 1, 2, IGNORED], [3, IGNORED, 1, 0]])
    _, gradient, n = token_loss(p, x, y)
    assert n == 6
    for name in WEIGHTS:
        for index in np.ndindex(*p[name].shape):
            values = []
            for by in (1e-6, -1e-6):
                moved = {**p, name: p[name].copy()}
                moved[name][index] += by
                values.append(token_loss(moved, x, y)[0])
            assert gradient[name][index] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6)


def test_an_update_is_that_of_one_big_batch() -> None:
    for requirement, call in CALLS:
        seen, losses = one_big_batch(call)
        for right in requirement.expected(call):
            assert int(right["updates"]) == len(seen)
            for step, p in enumerate(seen, 1):
                for name in WEIGHTS:
                    np.testing.assert_allclose(right[f"{step}/{name}"], p[name], atol=1e-12)
            if call.options["loss"]:
                np.testing.assert_allclose(right["losses"], losses)


def test_mistakes_show_and_no_two_look_alike() -> None:
    flags = ["", *FLAGS]
    looks = {f: [r.expected(c, frozenset({f} if f else ())) for r, c in CALLS] for f in flags}
    most = {f: [r.tolerance(c, frozenset({f} if f else ())) for r, c in CALLS] for f in flags}
    for one, other in combinations(looks, 2):
        if one.partition("#")[0] != other.partition("#")[0]:
            every = zip(looks[one], looks[other], most[other], strict=True)
            assert not all(agrees(*each) for each in every), (one, other)


def test_a_mistake_shows_where_it_is_looked_for() -> None:
    for requirement in REQUIREMENTS:
        calls = [call for r, call in CALLS if r is requirement]
        for flag in requirement.flags:
            assert not all(
                agrees(requirement.expected(c, frozenset({flag})), requirement.expected(c), most)
                for c in calls
                for most in [requirement.tolerance(c)]
            ), (requirement.name, flag)


def test_gradients_that_are_sent_more_often_than_needed_are_seen() -> None:
    requirement, call = next((r, c) for r, c in CALLS if r.name == "accumulate.sent")
    right = requirement.expected(call)
    updates = int(right[0]["updates"])
    for times, mistakes in ((1, None), (2, ("accum_sent_each",))):
        sent = {"sent/all_reduce": np.array([12, 4, 1, 1] * updates * times)}
        judgement = judge(requirement, [call], [Answer([own | sent for own in right])])
        assert judgement.status == ("not met" if mistakes else "met")
        assert judgement.mistakes == (mistakes or ())


def test_a_wrong_number_is_shown_with_what_it_is_made_of() -> None:
    requirement, call = next((r, c) for r, c in CALLS if r.name == "accumulate.clip")
    wrong = requirement.expected(call, frozenset({"accum_clip_ignored"}))
    judgement = judge(requirement, [call], [Answer(wrong)])
    assert judgement.mistakes == ("accum_clip_ignored",)
    assert judgement.inputs.keys() == {"θ_0", "N_0", "g", "‖g‖"}


def test_every_mistake_is_planted_in_both_frameworks() -> None:
    wanted = {(flag, one.name) for flag in MISTAKES for one in load_lab("accumulation").files}
    wanted -= {(flag, "accumulate_ms.py") for flag in TORCH_ONLY}
    assert {(p.name, p.file) for p in load_plants("accumulation") if not p.right} == wanted
    for plant in load_plants("accumulation"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_accumulation")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{flag}.{depth}" for flag in MISTAKES for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("accumulation", "accumulate", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    files = load_lab("accumulation").files
    there = {line.strip() for one in files for line in read_solution(one).splitlines()}
    assert read_translations("accumulation").keys() <= there
