"""The guard against framework-provided solutions inside a student's class, in MindSpore."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("optim_ms")[1]
LINE = "ops.assign_sub(self.parameters[i], lr * gradients[i])"


def judged(old: str, new: str, folder: Path) -> CheckResult:
    text = read_solution(EXERCISE)
    assert old in text
    path = folder / EXERCISE.name
    path.write_text(text.replace(old, new, 1), "utf-8")
    return check(EXERCISE, path, 7, select=lambda r: r.name in ("gd.update", "gd.rates"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            LINE,
            "getattr(nn, 'Mo' + 'mentum')(self.parameters, 0.1, 0.9)(gradients)",
            "mindspore.nn.Momentum",
        ),
        (
            LINE,
            "getattr(ops, 'Apply' + 'Momentum')()(self.parameters[i], gradients[i])",
            "mindspore.ops.ApplyMomentum",
        ),
        ("class GD(nn.Optimizer):", "class GD(vars(nn)['SGD']):", "mindspore.nn.SGD"),
        (LINE, "import dualml_ms.algorithms.optim", "import dualml_ms.algorithms.optim"),
        (LINE, "__import__('dualml_ms.algorithms.optim')", "import dualml_ms.algorithms.optim"),
    ],
)
def test_what_is_ready_made_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    checked = judged(old, new, tmp_path)
    trouble = checked.judgements[0].trouble
    assert trouble is not None, checked.judgements[0]
    assert (trouble.kind, trouble.message) == ("forbidden", message)


def test_an_update_in_place_that_moves_nothing_is_named(tmp_path: Path) -> None:
    new = "p = self.parameters[i]\n            p -= lr * gradients[i]"
    checked = judged(LINE, new, tmp_path)
    assert [j.mistakes for j in checked.judgements] == [("nothing",), ("nothing",)]


def test_what_never_ends_in_mindspore(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    path.write_text(
        read_solution(EXERCISE).replace(LINE, "while lr == lr:\n                pass"), "utf-8"
    )
    checked = check(EXERCISE, path, 7, select=lambda r: r.name == "gd.update", seconds=3.0)
    assert checked.judgements[0].trouble is not None
    assert checked.judgements[0].trouble.kind == "timeout"
