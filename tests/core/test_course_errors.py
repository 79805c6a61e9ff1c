"""Errors of a student's code are said in the student's words, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.common.words import LANGUAGES, Messages
from dualml.course.exercise import Trouble
from dualml.course.explained_errors import find_explanation, read_error_patterns
from dualml.course.labs import find_exercise
from dualml.course.rendering import trouble_text
from dualml.course.sandbox import Sandbox
from dualml.course.unfinished import is_below_code
from dualml.course.workspace import read_skeleton

OPTIM = find_exercise("optim_torch")[1]
RPC = find_exercise("rpc_torch")[1]
MESSAGES = {
    "rate_list": 'Failed calling Mul with "Mul()(input=Tensor, '
    "other=<class 'mindspore.nn.optim.optimizer._IteratorLearningRate'>)\".",
    "local_backward": 'graphTask_ INTERNAL ASSERT FAILED at "context.cpp":113, please report a bug',
    "context_ended": "Could not find autograd context with id: 0",
    "context_nested": "Already have an autograd context id for this thread.",
    "graph_freed": "Error on Node 0: Trying to backward through the graph a second time",
    "no_history": "requires_grad not set on root",
    "changed_in_place": "one of the variables needed has been modified by an inplace operation",
    "leaf_in_place": "a leaf Variable that requires grad is being used in an in-place operation.",
    "top_cell": "Can not find top cell for backward!",
    "internal": 'x INTERNAL ASSERT FAILED at "y.cpp":3, please report a bug to PyTorch.',
}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("name", read_error_patterns())
def test_a_framework_s_error_is_explained(name: str, lang: str) -> None:
    trouble = Trouble("RuntimeError", MESSAGES[name], "f.py", 3, "loss.backward()")
    words = Messages(lang)
    assert find_explanation(trouble) == name
    text = trouble_text(trouble, "f", 1, words)
    assert words(f"course.explained.{name}") in text
    assert "loss.backward()" in text


def test_other_errors_are_left_alone() -> None:
    trouble = Trouble("NameError", "name 'x' is not defined")
    assert find_explanation(trouble) == ""
    assert trouble_text(trouble, "f", 1, Messages("en")) == "NameError: name 'x' is not defined"


def raise_line(text: str, number: int = 0) -> int:
    """Return the line of a ``raise NotImplementedError``."""
    found = [n for n, line in enumerate(text.splitlines(), 1) if "raise NotImpl" in line]
    return found[number]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_skeleton_is_unwritten_and_not_unfinished(lang: str) -> None:
    for exercise, lab in ((OPTIM, "lab1"), (RPC, "lab4")):
        text = read_skeleton(exercise, lab, lang)
        for number in range(text.count("raise NotImplementedError")):
            assert not is_below_code(text, raise_line(text, number), exercise.solution)


@pytest.mark.parametrize("where", ["{0}\n{1}", "{1}\n{0}", "if True:\n    {0}\n{1}"])
def test_code_beside_the_raise_is_seen(where: str) -> None:
    text = read_skeleton(OPTIM, "lab1", "en")
    line = next(row for row in text.splitlines() if "raise NotImpl" in row)
    indent = " " * (len(line) - len(line.lstrip()))
    added = where.format("x = [1]", "raise NotImplementedError").splitlines()
    changed = text.replace(line, "\n".join(indent + row for row in added), 1)
    assert is_below_code(changed, raise_line(changed), OPTIM.solution)
    assert not is_below_code(changed, raise_line(changed, 1), OPTIM.solution)
    assert not is_below_code("def f(:\n", 1, OPTIM.solution)


def test_the_check_says_the_line_of_the_raise_that_is_left(tmp_path: Path) -> None:
    text = read_skeleton(OPTIM, "lab1", "en")
    row = next(row for row in text.splitlines() if "raise NotImpl" in row)
    written = row.replace("raise NotImplementedError", "x = 1")
    path = tmp_path / OPTIM.name
    told = []
    for source in (text, text.replace(row, f"{written}\n{row}", 1)):
        path.write_text(source, "utf-8")
        unwritten = Trouble("unwritten", line=raise_line(source))
        told.append(Sandbox(OPTIM, path).with_source_line(unwritten))
    assert [trouble.kind for trouble in told] == ["unwritten", "unfinished"]
    assert told[1].text == "raise NotImplementedError"
    assert f"line {told[1].line}" in trouble_text(told[1], "GD", 1, Messages("en"))
