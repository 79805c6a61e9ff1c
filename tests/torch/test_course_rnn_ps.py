"""The exercises on parameter servers, in PyTorch: our solutions, some mistakes and variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualml.course.catalogue import Plant, load_plants
from dualml.course.check import CheckResult, check
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

FILES = ("server_torch.py", "remote_torch.py")
MISTAKES = [
    ("server_torch.py", name)
    for name in ("gradients_of_last", "updated_between", "whole_table_sent", "one_sided")
] + [
    ("remote_torch.py", name)
    for name in ("tables_frozen", "table_copied", "state_not_detached", "context_ended")
]
VARIANTS = [("server_torch.py", "each word once"), ("remote_torch.py", "two optimizers")]
PLANTS = {(p.file, p.name): p for p in load_plants("rnn_ps")}


def judged(file: str, plant: Plant | None, seed: int, folder: Path) -> CheckResult:
    exercise = find_exercise(file)[1]
    text = read_solution(exercise)
    path = folder / file
    path.write_text(text if plant is None else plant.patch.apply(text), "utf-8")
    return check(exercise, path, seed)


@pytest.mark.parametrize("file", FILES)
def test_our_solution_meets_everything(file: str, tmp_path: Path) -> None:
    checked = judged(file, None, 3, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]


@pytest.mark.parametrize(("file", "name"), MISTAKES)
def test_a_mistake_is_named(file: str, name: str, tmp_path: Path) -> None:
    checked = judged(file, PLANTS[file, name], 5, tmp_path)
    failed = [j for j in checked.judgements if j.status != "met"]
    assert failed
    assert failed[0].mistakes == (name,)


@pytest.mark.parametrize(("file", "name"), VARIANTS)
def test_what_is_right_in_another_way_is_accepted(file: str, name: str, tmp_path: Path) -> None:
    checked = judged(file, PLANTS[file, name], 5, tmp_path)
    assert checked.is_passed, [j for j in checked.judgements if j.status != "met"]
