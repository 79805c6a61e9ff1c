"""A student's ranks that diverge: bounded in time, and the faulty rank is named with its line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dualml.course.check import check
from dualml.course.exercise import Trouble
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

pytestmark = pytest.mark.system
EXERCISE = find_exercise("zero_torch")[1]
LINE = "g = self.comm.reduce_scatter(gradient) / self.comm.size"


def trouble(code: str, folder: Path) -> Trouble:
    text = read_solution(EXERCISE)
    assert text.count(LINE) == 1
    path = folder / EXERCISE.name
    path.write_text(text.replace(LINE, f"{code}\n        {LINE}"), "utf-8")
    began = time.monotonic()
    (judgement,) = check(EXERCISE, path, 3, select=lambda r: r.name == "zero.sent").judgements
    assert time.monotonic() - began < 40.0
    assert judgement.trouble is not None
    return judgement.trouble


@pytest.mark.parametrize(
    ("code", "kind", "message", "rank"),
    [
        (
            "if self.comm.rank == 0: self.comm.all_gather(gradient)",
            "CommunicationError",
            "rank 0: all_gather float32 (24,) op=sum root=0; rank 1: reduce_scatter",
            None,
        ),
        ("if self.comm.rank == 1: raise KeyError('x')", "KeyError", "'x'", 1),
        ("if self.comm.rank == 1: return", "CommunicationError", "missing: rank 1 of 2", 0),
        ("while self.comm.rank == 1: pass", "timeout", "", 1),
        ("import os; self.comm.rank and os._exit(3)", "died", "exit code 3", 1),
        ("self.comm.gather(gradient)", "AttributeError", "no 'gather' in this exercise", None),
    ],
)
def test_the_rank_and_line_are_named(
    code: str, kind: str, message: str, rank: int | None, tmp_path: Path
) -> None:
    told = trouble(code, tmp_path)
    assert (told.kind, message in told.message) == (kind, True), told
    assert rank in (None, told.rank)
    assert kind == "died" or told.line > 0
    if kind not in ("died", "CommunicationError"):
        assert told.text == code
