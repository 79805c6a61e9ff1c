"""The exercise on loss scaling, without a framework: rules, catalogue, messages, pages."""

from __future__ import annotations

import numpy as np
import pytest
from look_alikes import find_look_alikes

from dualml.algorithms.optim import GD
from dualml.algorithms.precision import scaling
from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.exercise import RIGHT
from dualml.course.judge import agrees
from dualml.course.labs import find_exercise, load_lab
from dualml.course.methods.requirements import REQUIREMENTS
from dualml.course.workspace import read_page, read_solution, read_translations

FLAGS = list(dict.fromkeys(flag for r in REQUIREMENTS for flag in r.flags))
CALLS = [(r, r.calls(np.random.default_rng(5))[0]) for r in REQUIREMENTS]


@pytest.mark.parametrize(("requirement", "call"), CALLS, ids=[r.name for r, _ in CALLS])
def test_the_rule_is_that_of_our_own_scaler(requirement, call, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    hyper, arrays = call.options["hyper"], call.arrays[0]
    for constant, key in (
        ("START", "scale"),
        ("BACKOFF", "backoff"),
        ("GROWTH", "growth"),
        ("INTERVAL", "interval"),
    ):
        monkeypatch.setattr(scaling, constant, hyper[key])
    scaler, rule = scaling.Scaler(), GD(lr=call.options["lr"])
    (right,) = requirement.expected(call)
    (most,) = requirement.tolerance(call)
    scaler.scale = hyper["scale"]
    names = [key[2:] for key in arrays if key.startswith("p/")]
    now = {n: arrays[f"p/{n}"].astype(np.float64) for n in names}
    assert right["loss"] == pytest.approx(float(arrays["loss"]) * hyper["scale"])
    for step in range(1, call.options["steps"] + 1):
        gradients = {n: arrays[f"g/{step}/{n}"].astype(np.float64) for n in names}
        used = scaler.unscale_gradients(gradients)
        done = scaler.should_step(all(np.isfinite(g).all() for g in gradients.values()))
        if done:
            now = dict(rule.update(now, used, {}, step, None)[0])
        assert right[f"{step}/scale"] == pytest.approx(scaler.scale)
        assert bool(right[f"{step}/done"]) is done
        for n in names:
            assert np.all(np.abs(right[f"{step}/{n}"] - now[n]) <= most[f"{step}/{n}"])


def test_mistakes_show_and_no_two_look_alike() -> None:
    assert find_look_alikes(CALLS, FLAGS) == []


def test_a_mistake_shows_where_it_is_looked_for() -> None:
    for requirement, call in CALLS:
        right, most = requirement.expected(call, RIGHT), requirement.tolerance(call)
        for flag in requirement.flags:
            assert not agrees(requirement.expected(call, frozenset({flag})), right, most), flag


def test_every_mistake_is_planted_in_both_frameworks() -> None:
    wanted = {(flag, one.name) for flag in FLAGS for one in load_lab("methods").files}
    assert {(p.name, p.file) for p in load_plants("methods") if not p.right} == wanted
    for plant in load_plants("methods"):
        text = read_solution(find_exercise(plant.file)[1])
        assert plant.patch.apply(text) != text


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    own = load_messages(lang, "course_methods")
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{flag}.{depth}" for flag in FLAGS for depth in depths}
    assert own.keys() == wanted | {f"requirement.{r.name}" for r in REQUIREMENTS}
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement(lang: str) -> None:
    task = read_page("methods", "scaling", lang)
    assert task.startswith("# ")
    for requirement in REQUIREMENTS:
        assert f"`{requirement.name}`" in task


def test_no_translated_line_is_left_over() -> None:
    there = {
        line.strip()
        for one in load_lab("methods").files
        for line in read_solution(one).splitlines()
    }
    assert read_translations("methods").keys() <= there
