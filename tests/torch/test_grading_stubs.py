"""Unfinished files earn no points under ``once`` that they would not earn without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.check import check
from dualml.course.exercise import ExerciseFile
from dualml.course.grading.rubric import Rubric
from dualml.course.labs import LABS, load_lab
from dualml.course.workspace import read_skeleton

FILES = {
    (name, f.name): f for name in LABS for f in load_lab(name).files if f.backend != "mindspore"
}
STUBS = {
    "partition.py": ("return []", "return 0", "return [0.5]"),
    "schedule.py": ("return []", "return 0", "return [[] for _ in range(stages)]"),
}
CASES = [(*key, stub) for key in FILES for stub in ("pass", *STUBS.get(key[1], ()))]


@pytest.mark.system
@pytest.mark.parametrize(("name", "program", "stub"), CASES)
def test_a_stub_is_no_slip(name: str, program: str, stub: str, tmp_path: Path) -> None:
    file: ExerciseFile = FILES[name, program]
    text = read_skeleton(file, name, "en")
    assert "raise NotImplementedError" in text
    path = tmp_path / program
    path.write_text(text.replace("raise NotImplementedError", stub), "utf-8")
    judgements = check(file, path, seed=7).judgements
    assert Rubric(once=True).earned_points(file, judgements) == Rubric().earned_points(
        file, judgements
    )
