"""The benchmark of students' solutions: its cases, its grading, and the figures on the pages."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dualml.course.grading.rubric import known_mistakes
from dualml.course.labs import load_lab

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "students"
DOCS = FOLDER.parents[1] / "docs"
#: Most lines of a file that a student hands in.
MAX_LINES = 300


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Load `benchmarks/students/run.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("students_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["students_run"] = module  # its dataclass looks itself up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["students_run"]


def test_every_case_is_complete(bench: Any) -> None:
    cases = bench.read_cases()
    assert len(cases) == len(list((FOLDER / "cases").glob("*/*"))) >= 150
    for case in cases:
        assert set(case.facts) == bench.KEYS, case.name
        files = list(case.folder.glob("*.py"))
        assert files, case.name
        trees = [ast.parse(file.read_text("utf-8")) for file in files]
        names = {getattr(node, "name", "") for tree in trees for node in tree.body}
        assert set(case.facts["target"].split()) <= names, case.name
        assert all(len(f.read_text("utf-8").splitlines()) <= MAX_LINES for f in files), case.name


def test_accepted_mistakes_are_those_of_the_catalogue(bench: Any) -> None:
    for case in bench.read_cases():
        accepted = case.facts["accepted"]
        assert not (case.facts["right"] and accepted), case.name
        assert set(accepted) <= set(known_mistakes(load_lab(case.lab))), case.name


def test_halves_are_stable(bench: Any) -> None:
    of_half = {name: bench.Case(name, {}).half for name in ("lab1/a", "lab1/b", "lab2/a")}
    assert of_half == {"lab1/a": "held-out", "lab1/b": "tuned", "lab2/a": "held-out"}
    held_out = [case for case in bench.read_cases() if case.half == "held-out"]
    assert len(held_out) >= 75


def test_the_first_mistake_that_is_named_counts(bench: Any) -> None:
    case = bench.Case("lab1/x", {"accepted": ["sign"], "right": False})

    def grade(*mistakes: list[str]) -> dict[str, Any]:
        requirements = [{"mistakes": [{"name": one} for one in names]} for names in mistakes]
        written = {"file": "a.py", "met": False, "requirements": requirements}
        skeleton = {"file": "b.py", "met": False, "requirements": []}
        found: dict[str, Any] = bench.grade(
            case, json.dumps({"files": [written, skeleton]}), {"a.py"}
        )
        return found

    assert grade(["sign"], ["no_lr"])["named"] == "right"
    assert grade(["no_lr"], ["sign"])["named"] == "wrong"
    assert grade([])["named"] == "no"
    assert grade([])["detected"]
    assert bench.grade(case, "no JSON", {"a.py"})["stumbled"]


@pytest.mark.parametrize("page", ["benchmarks-robustness.md", "benchmarks-robustness.zh.md"])
def test_the_published_figures_are_those_of_the_results(bench: Any, page: str) -> None:
    results = json.loads((FOLDER / "results.json").read_text("utf-8"))
    cases = [case.name for case in bench.read_cases() if case.half == "held-out"]
    assert [row["name"] for row in results if row["half"] == "held-out"] == cases
    text = (DOCS / page).read_text("utf-8")
    table = text.partition("<!-- students -->")[2].partition("<!-- /students -->")[0]
    published = [
        [int(n) for n in re.findall(r"\d+", line.partition("|")[2].partition("|")[2])]
        for line in table.strip().splitlines()[2:]
    ]
    held_out = [row for row in results if row["half"] == "held-out"]
    labs = ["lab1", "lab2", "lab3", "lab4", ""]
    assert published == [counts([r for r in held_out if r["name"].startswith(lab)]) for lab in labs]


def counts(rows: list[dict[str, Any]]) -> list[int]:
    """Return what a line of the table holds."""
    wrong = [row for row in rows if not row["right"]]
    right = [row for row in rows if row["right"]]
    return [
        len(wrong),
        sum(row["detected"] for row in wrong),
        *(sum(row["named"] == kind for row in wrong) for kind in ("right", "wrong")),
        sum(not row["detected"] for row in right),
        len(right),
    ]
