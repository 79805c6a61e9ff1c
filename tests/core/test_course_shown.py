"""The output of a check as a student reads it, and the choice of requirements to check."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.common.seeds import make_generator
from dualml.common.words import Messages
from dualml.course import paper
from dualml.course.check import CheckResult, judge_requirements, passes_check
from dualml.course.exercise import Answer, ExerciseCall, MachineFault, Requirement, Trouble
from dualml.course.judge import Judgement, Status, judge
from dualml.course.labs import find_exercise
from dualml.course.paper import write_paper
from dualml.course.rendering import result_lines, trouble_text
from dualml.course.workspace import create_workspace, open_workspace
from dualml.interface.cli import course as course_command
from dualml.interface.cli.course import select_files, show_checked

TORCH, MINDSPORE = find_exercise("optim_torch")[1], find_exercise("optim_ms")[1]
BY_NAME = {r.name: r for r in TORCH.requirements}


def render_check(judgements: Sequence[Judgement], brief: bool = False, printed: str = "") -> str:
    checked = CheckResult(TORCH, Path("optim_torch.py"), [], judgements, 1, printed)
    return "\n".join(result_lines(checked, 1, Messages("en"), brief))


def test_what_is_not_written_takes_one_line() -> None:
    text = render_check([Judgement(r, "unwritten") for r in TORCH.requirements[:4]])
    names = [r.name for r in TORCH.requirements[:4]]
    assert len(text.splitlines()) == 2
    assert all(name in text.splitlines()[1] for name in names)


def test_what_is_met_takes_one_line_where_it_is_seen_again_and_again() -> None:
    judgements = [Judgement(r, "met") for r in TORCH.requirements]
    assert len(render_check(judgements).splitlines()) == 1 + len(judgements)
    assert len(render_check(judgements, brief=True).splitlines()) == 2


def test_a_file_that_is_not_begun_fails_no_check(capsys: pytest.CaptureFixture[str]) -> None:
    def result(file: str, status: Status) -> CheckResult:
        judgements = [Judgement(r, status) for r in TORCH.requirements]
        return CheckResult(TORCH, Path(file), [], judgements, 1)

    met, unwritten = result("optim_torch.py", "met"), result("optim_ms.py", "unwritten")
    assert passes_check([met, unwritten])
    assert not passes_check([unwritten])
    assert not passes_check([met, result("optim_ms.py", "not met")])
    assert not passes_check([met, result("optim_ms.py", "not judged")])
    show_checked([met, unwritten], 1, 1, Messages("en"))
    assert "Not begun, and no failure of the check: optim_ms.py." in capsys.readouterr().out
    show_checked([unwritten], 1, 1, Messages("en"))
    assert "Not begun" not in capsys.readouterr().out


def test_an_error_is_shown_once() -> None:
    error = Trouble("NameError", "name 'x' is not defined", line=3, text="x")
    judgements = [Judgement(r, "not met", error) for r in TORCH.requirements[:3]]
    text = render_check(judgements)
    assert text.count("NameError") == 1
    assert text.count(f"the same error as at {TORCH.requirements[0].name}") == 2


def test_errors_of_two_lines_are_two() -> None:
    one, other = (Trouble("KeyError", "'m'", line=n, text="m") for n in (3, 7))
    judgements = [
        Judgement(r, "not met", e) for r, e in zip(TORCH.requirements, (one, other), strict=False)
    ]
    assert render_check(judgements).count("KeyError") == 2


def test_what_the_code_printed_is_shown_though_all_is_met() -> None:
    text = render_check([Judgement(TORCH.requirements[0], "met")], printed="a\n" * 9 + "mine\n")
    assert text.endswith("      mine")
    assert text.count("      a\n") == 4


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], (30, 25)),
        (["GD"], (6, 5)),
        (["optim_torch", "GD"], (6, 0)),
        (["optim"], (30, 25)),
        (["mindspore", "gd.update"], (0, 1)),
        (["gd.groups"], (1, 0)),
    ],
)
def test_which_requirements_are_asked_for(
    names: list[str], expected: tuple[int, int], tmp_path: Path
) -> None:
    create_workspace("lab1", tmp_path / "w", "both", "en", notebook=False)
    workspace = open_workspace(tmp_path / "w")
    found = {f.name: sum(map(test, f.requirements)) for f, test in select_files(workspace, names)}
    assert (found.get("optim_torch.py", 0), found.get("optim_ms.py", 0)) == expected


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["optim_torhc"], "did you mean 'optim_torch'"),
        (["optim_ms", "gd.groups"], "optim_ms.py has no gd.groups"),
    ],
)
def test_what_there_is_not(names: list[str], why: str, tmp_path: Path) -> None:
    create_workspace("lab1", tmp_path / "w", "both", "en", notebook=False)
    with pytest.raises(UserError, match=why):
        select_files(open_workspace(tmp_path / "w"), names)


def answered(
    names: Sequence[str], wrong: dict[str, Sequence[str]]
) -> list[tuple[tuple[Requirement, ExerciseCall], Answer]]:
    """Return right answers, except that the given requirements get the numbers of the given
    mistakes."""
    found = []
    for r in MINDSPORE.requirements:
        for call in r.calls(make_generator(3, "exercise", r.name)) if r.name in names else ():
            arrays = r.expected(call, frozenset(wrong.get(r.name, ())))
            if "noise" in wrong.get(r.name, ()):
                arrays = [{k: a + np.float32(0.3) for k, a in each.items()} for each in arrays]
            found.append(((r, call), Answer(arrays)))
    return found


def mistakes(names: Sequence[str], wrong: dict[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    wanted = [r for r in MINDSPORE.requirements if r.name in names]
    return {
        j.requirement.name: j.mistakes
        for j in judge_requirements(MINDSPORE, wanted, answered(names, wrong), set())
    }


def test_what_is_wrong_only_where_it_is_compiled_is_said_to_be() -> None:
    names = [r.name for r in MINDSPORE.requirements if r.target == "Adam"]
    assert mistakes(names, {"adam.graph": ["noise"]})["adam.graph"] == ("compiled_apart",)
    # The numbers of a mistake that the same class does not make elsewhere are chance.
    assert mistakes(names, {"adam.graph": ["old_moments"]})["adam.graph"] == ("compiled_apart",)
    everywhere = dict.fromkeys(names, ("old_moments",))
    assert mistakes(names, everywhere)["adam.graph"] == ("old_moments",)
    both = {"adam.update": ["noise"], "adam.graph": ["noise"]}
    assert mistakes(names, both)["adam.graph"] == ()
    # Alone it says nothing: who knows what the others would be.
    assert mistakes(["adam.graph"], {"adam.graph": ["noise"]})["adam.graph"] == ()


def test_two_mistakes_are_known_again_in_the_form_in_which_they_were_found() -> None:
    names = [r.name for r in MINDSPORE.requirements if r.target == "Adam"]
    two = ("eps_inside", "power_missing#2")
    found = mistakes(names, dict.fromkeys(names, two))
    assert found.pop("adam.biased") == ("eps_inside",)
    assert found.pop("adam.unchanged") == ()  # no number of theirs
    assert set(map(frozenset, found.values())) == {frozenset({"eps_inside", "power_missing"})}


def test_a_measurement_follows_what_was_wrong_before() -> None:
    """A wrong mean of a few calls is as far off as a late rank makes it, so earlier mistakes decide
    which is named."""
    measured = {
        r.name: r for r in find_exercise("aggregate_torch")[1].requirements if r.target == "measure"
    }
    late = measured["measure.late"]
    calls = late.calls(make_generator(3, "exercise", late.name))
    right = late.expected(calls[0])[0]["seconds"]
    answers = [Answer([{"seconds": right + 0.06}] * 2)]
    assert judge(late, calls, answers).mistakes == ("measure_unsynchronised",)
    assert judge(late, calls, answers, frozenset({"measure_mean"})).mistakes == ("measure_mean",)


def test_an_error_has_its_rank_where_there_are_several() -> None:
    error, words = Trouble("KeyError", "'x'", rank=1), Messages("en")
    assert trouble_text(error, "f", 2, words) == "KeyError: 'x' on rank 1"
    assert trouble_text(error, "f", 1, words) == "KeyError: 'x'"


def test_a_report_that_is_no_file_is_refused(tmp_path: Path) -> None:
    create_workspace("lab3", tmp_path / "w", "torch", "en", notebook=False)
    (tmp_path / "w" / "report.md").unlink()
    os.mkfifo(tmp_path / "w" / "report.md")
    with pytest.raises(UserError, match="pipe"):
        write_paper(open_workspace(tmp_path / "w"), [], Messages("en"))


def test_a_report_that_the_machine_ends_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Path:
        raise MachineFault("killed")

    create_workspace("lab3", tmp_path / "w", "torch", "en", notebook=False)
    monkeypatch.setattr(course_command, "check_files", lambda *_, **more: [])
    monkeypatch.setattr(paper, "write_paper", fail)
    with pytest.raises(UserError, match=r"report\.html is not written: killed"):
        course_command.write_paper(tmp_path / "w", "en")
