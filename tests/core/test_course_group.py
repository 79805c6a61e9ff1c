"""The exercise on starting groups: its rules, messages and pages, without a framework."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from dualml.common.words import LANGUAGES, load_messages
from dualml.course.catalogue import load_plants
from dualml.course.exercise import RIGHT
from dualml.course.judge import agrees
from dualml.course.lab2.groups import group_requirements
from dualml.course.labs import find_exercise, load_lab
from dualml.course.starting import (
    GroupError,
    WorkFailed,
    as_number,
    check_port,
    check_rank,
    hide_variables,
    replace_functions,
    run_work,
)
from dualml.course.workspace import read_page

FILES = ("group_torch", "group_ms")
MISTAKES = {
    "group_torch": {
        "group_world_size",
        "group_same_rank",
        "group_no_address",
        "group_left",
        "rpc_left",
        "group_before_start",
        "rpc_before_start",
        "group_unreturned",
        "group_left_on_error",
        "group_error_lost",
        "group_port",
        "rpc_name",
    },
    "group_ms": {
        "group_world_size",
        "group_same_rank",
        "group_no_address",
        "group_left",
        "group_before_start",
        "group_unreturned",
        "group_left_on_error",
        "group_error_lost",
        "group_port",
    },
}


@pytest.mark.parametrize("name", FILES)
def test_every_mistake_is_planted(name: str) -> None:
    own = {p.name for p in load_plants("lab2") if p.file == f"{name}.py" and not p.right}
    assert own == MISTAKES[name]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_there_are_words_for_everything(lang: str) -> None:
    depths = ("symptom", "place", "principle", "cause")
    wanted = {f"mistake.{n}.{d}" for n in MISTAKES["group_torch"] for d in depths}
    wanted |= {f"requirement.{r.name}" for r in group_requirements(rpc=True)}
    own = load_messages(lang, "course_group")
    assert own.keys() == wanted
    assert all(own.values())


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_task_names_every_requirement_and_function(lang: str) -> None:
    task = read_page("lab2", "group", lang)
    for requirement in group_requirements(rpc=True):
        assert f"`{requirement.name}`" in task
        assert f"`{requirement.target}(rank, size, address, port, work)`" in task


def test_mistakes_show_and_no_two_look_alike() -> None:
    for requirement in group_requirements(rpc=True):
        calls = requirement.calls(np.random.default_rng(0))
        looks = [
            [requirement.expected(call, f) for call in calls]
            for f in (RIGHT, *(frozenset({flag}) for flag in requirement.flags))
        ]
        for n, one in enumerate(looks):
            for other in looks[n + 1 :]:
                pairs = zip(one, other, calls, strict=True)
                assert not all(agrees(a, b, requirement.tolerance(call)) for a, b, call in pairs)


def test_only_these_files_may_use_the_framework_s_communication() -> None:
    every = [f for f in load_lab("lab2").files if f.starts_groups]
    assert [f.task for f in every] == list(FILES)
    assert not find_exercise("rpc_torch")[1].starts_groups


def test_a_start_as_another_rank_is_told_with_its_numbers() -> None:
    check_rank(1, 3, 1, 3)
    with pytest.raises(GroupError, match="started for 4 ranks; 3 processes take part"):
        check_rank(1, 3, 1, 4)
    with pytest.raises(GroupError, match="rank 1 calls itself rank 0"):
        check_rank(1, 3, 0, 3)


def test_a_meeting_at_another_port_is_told_with_its_numbers() -> None:
    check_port(4000, 4000)
    with pytest.raises(GroupError, match="meet at port 29500; port 4000 was handed over"):
        check_port(4000, 29500)


def test_an_error_of_the_work_has_to_come_through() -> None:
    def fail() -> None:
        raise WorkFailed("the work fails")

    assert run_work(fail, fails=True) == 1.0
    assert run_work(lambda: None, fails=True) == -1.0
    assert run_work(lambda: 3, fails=False) == 3.0
    with pytest.raises(WorkFailed):
        run_work(fail, fails=False)


def test_variables_of_a_launcher_are_neither_seen_nor_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.delenv("MS_ROLE", raising=False)
    with hide_variables():
        assert "MASTER_ADDR" not in os.environ
        os.environ["MS_ROLE"] = "MS_WORKER"
    assert os.environ["MASTER_ADDR"] == "elsewhere"
    assert "MS_ROLE" not in os.environ


def test_functions_are_replaced_wherever_the_student_has_them_and_put_back() -> None:
    def start() -> str:
        return "real"

    owner = SimpleNamespace(start=start)
    student = SimpleNamespace(begin=start, other=print)
    with replace_functions(student, [owner], {"start": lambda: "watched"}):
        assert (owner.start(), student.begin()) == ("watched", "watched")
    assert (owner.start, student.begin, student.other) == (start, start, print)


@pytest.mark.parametrize(("returned", "number"), [(3, 3.0), (None, -1.0), ("x", -1.0)])
def test_what_is_no_number_is_seen(returned: object, number: float) -> None:
    assert as_number(returned) == number
