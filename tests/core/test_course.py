"""Exercises without a framework: skeletons, workspaces, reading a student's file, judging."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from skeleton_parts import fill_skeleton, solution_bodies

from dualml.common.errors import UserError
from dualml.course import search_work
from dualml.course.catalogue import load_plants
from dualml.course.differences import distances, first_difference, time_order
from dualml.course.exercise import (
    RIGHT,
    Answer,
    Arrays,
    ExerciseCall,
    ExerciseFile,
    Flags,
    Requirement,
    Trouble,
)
from dualml.course.judge import judge
from dualml.course.labs import LABS, find_exercise, load_lab
from dualml.course.paper import split_report
from dualml.course.search_work import SearchWork, find_coarse_limit, is_far_off
from dualml.course.skeletons import make_skeleton
from dualml.course.source import examine
from dualml.course.workspace import (
    NAME,
    create_workspace,
    open_workspace,
    read_page,
    read_skeleton,
    read_solution,
    task_names,
)

FILES = [(name, one) for name in LABS for one in load_lab(name).files]
NAMES = [one.name for _, one in FILES]
TORCH = find_exercise("optim_torch")[1]


@pytest.mark.parametrize(("name", "one"), FILES, ids=NAMES)
def test_a_skeleton_and_our_solution_are_our_file(name: str, one: ExerciseFile) -> None:
    text = read_solution(one)
    empty = make_skeleton(text)
    assert fill_skeleton(empty, solution_bodies(text)) == text
    assert empty.count("# your code: begin") == len(solution_bodies(text)) > 0
    ast.parse(empty)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(("name", "one"), FILES, ids=NAMES)
def test_no_line_of_a_solution_is_in_a_workspace(name: str, one: ExerciseFile, lang: str) -> None:
    text, empty = read_solution(one), read_skeleton(one, name, lang)
    given = {line.strip() for line in make_skeleton(text).splitlines()}
    hidden = {line.strip() for body in solution_bodies(text) for line in body.splitlines()} - given
    hidden = {line for line in hidden if len(line) > 12}
    assert hidden
    texts = [empty, read_page(name, task_names([one])[0], lang), read_page(name, "report", lang)]
    for line in hidden:
        assert not any(line in shown.splitlines() for shown in texts)
        assert line not in {shown.strip() for shown in empty.splitlines()}


@pytest.mark.parametrize(("name", "one"), FILES, ids=NAMES)
def test_a_chinese_skeleton_has_no_english_sentence(name: str, one: ExerciseFile) -> None:
    tree = ast.parse(read_skeleton(one, name, "zh"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            for line in text.splitlines():
                own = [c for c in line if "一" <= c <= "鿿"]
                words = [w for w in line.replace(":", " ").split() if w.isalpha() and len(w) > 3]
                assert own or len(words) < 4, line


def test_marks_that_do_not_match_are_refused() -> None:
    for text in ("# solution: end\n", "# solution: begin\n", "# solution: begin\n" * 2):
        with pytest.raises(ValueError, match="line"):
            solution_bodies(text)


@pytest.mark.parametrize("name", LABS)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_workspace_has_what_is_needed(name: str, lang: str, tmp_path: Path) -> None:
    made = create_workspace(name, tmp_path / "w s 学", "both", lang, notebook=True)
    names = {path.name for path in made}
    assert {NAME, "report.md", "Makefile", f"{name}.ipynb"} <= names
    assert {one.name for one in load_lab(name).files} <= names
    workspace = open_workspace(tmp_path / "w s 学")
    assert [f.name for f in workspace.files] == [f.name for f in load_lab(name).files]
    cells = json.loads((tmp_path / "w s 学" / f"{name}.ipynb").read_text("utf-8"))["cells"]
    assert any("%%writefile" in "".join(cell["source"]) for cell in cells)
    title, _head, sections = split_report((tmp_path / "w s 学" / "report.md").read_text("utf-8"))
    assert title
    assert [number for number, _, _ in sections] == ["1", "2", "3", "4", "5"]
    makefile = (tmp_path / "w s 学" / "Makefile").read_text("utf-8")
    assert "\n\tdualml check\n" in makefile


def test_a_workspace_of_one_framework(tmp_path: Path) -> None:
    create_workspace("lab1", tmp_path / "w", "torch", "en", notebook=False)
    assert not (tmp_path / "w" / "optim_ms.py").exists()
    assert [f.name for f in open_workspace(tmp_path / "w").files] == ["optim_torch.py"]


def test_workspaces_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    for name, path, backend, lang, text in (
        ("lab1", tmp_path / "full", "both", "en", "not empty"),
        ("lab7", tmp_path / "w", "both", "en", "did you mean 'lab"),
        ("lab1", tmp_path / "w", "troch", "en", "torch"),
        ("lab1", tmp_path / "w", "both", "fr", "en or zh"),
    ):
        with pytest.raises(UserError, match=text):
            create_workspace(name, path, backend, lang, notebook=False)
    assert (tmp_path / "full" / "mine").read_text() == "x"
    with pytest.raises(UserError, match="dualml new"):
        open_workspace(tmp_path)
    create_workspace("lab1", tmp_path / "w", "both", "en", notebook=False)
    settings = tmp_path / "w" / NAME
    settings.write_text(settings.read_text("utf-8").replace("format = 1", "format = 9"))
    with pytest.raises(UserError, match="format 9"):
        open_workspace(tmp_path / "w")
    settings.write_text('format = 1\ndualml = "x"\nlab = "lab1"\nbackends = ["jax"]\nlang = "en"\n')
    with pytest.raises(UserError, match="backends"):
        open_workspace(tmp_path / "w")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("def f(:\n", "syntax"),
        ("x = 1\n", "missing"),
        ("import mindspore\n", "framework"),
        ("import dualml_torch.algorithms.optim as o\n", "banned"),
        ("from torch.optim import Adam as A\n", "ready_made"),
        ("import torch.optim as o\nclass GD(o.SGD):\n    pass\n", "ready_made"),
        ("import torch\ndef f(p):\n    return torch.optim.AdamW(p)\n", "ready_made"),
        ("import torch.distributed as d\nd.all_reduce(1)\n", "communication"),
        ("from torch.distributed import all_gather\n", "communication"),
        ("from torch.distributed import *\n", "communication"),
        ("import ctypes\n", "roundabout"),
        ("x = eval('1')\n", "roundabout"),
        ("class GD:\n    def step(self, other):\n        pass\n", "signature"),
        ("x" * 300_000, "long"),
    ],
)
def test_what_is_seen_without_running_a_file(text: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "optim_torch.py"
    path.write_text(text)
    assert kind in {p.kind for p in examine(path, TORCH)}


@pytest.mark.parametrize("coding", ["utf-8-sig", "gb18030"])
def test_a_file_is_read_as_python_reads_it(coding: str, tmp_path: Path) -> None:
    path = tmp_path / "optim_torch.py"
    text = (
        f"# -*- coding: {coding.removesuffix('-sig')} -*-\r\n" + read_solution(TORCH) + "# 学生\r\n"
    )
    path.write_bytes(text.encode(coding))
    assert examine(path, TORCH) == []
    for wrong in ("nothing", "hex", "undefined"):
        path.write_text(f"# -*- coding: {wrong} -*-\n")
        assert examine(path, TORCH)[0].kind == "text"


def test_a_syntax_error_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "optim_torch.py"
    path.write_text("import torch\nclass GD(\n")
    (problem,) = examine(path, TORCH)
    assert (problem.kind, problem.line, problem.text) == ("syntax", 2, "class GD(")
    path.write_bytes(b"\xff\xfe\x00")
    assert examine(path, TORCH)[0].kind == "text"
    path.unlink()
    assert examine(path, TORCH)[0].kind == "absent"


@pytest.mark.parametrize(("name", "one"), FILES, ids=NAMES)
def test_nothing_is_wrong_with_a_solution_or_a_skeleton(
    name: str, one: ExerciseFile, tmp_path: Path
) -> None:
    for text in (
        read_solution(one),
        read_skeleton(one, name, "en"),
        read_skeleton(one, name, "zh"),
    ):
        path = tmp_path / one.name
        path.write_text(text, "utf-8")
        assert examine(path, one) == []


@pytest.mark.parametrize("name", LABS)
def test_every_plant_applies(name: str) -> None:
    for plant in load_plants(name):
        one = find_exercise(plant.file)[1]
        changed = plant.patch.apply(read_solution(one))
        assert changed != read_solution(one)
        ast.parse(changed)


def test_there_are_enough_mistakes_and_variants() -> None:
    known = [plant for name in LABS for plant in load_plants(name)]
    assert len({plant.name for plant in known if not plant.right}) >= 60
    assert len([plant for plant in known if plant.right]) >= 20


# --- judging -----------------------------------------------------------------------------------


@dataclass
class Sum(Requirement):
    """An exercise y = a + b with three mistakes."""

    name: str = "sum"
    target: str = "add"
    flags: Sequence[str] = ("minus", "doubled", "late")
    errors: Sequence[tuple[str, str]] = (("ZeroDivision", "divided"),)

    def calls(self, draw: np.random.Generator) -> list[ExerciseCall]:
        return [
            ExerciseCall(
                "function", "add", {}, [{"a": draw.normal(size=3), "b": draw.normal(size=3)}]
            )
        ]

    def expected(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        a, b = call.arrays[0]["a"], call.arrays[0]["b"]
        y = (a - b if "minus" in flags else a + b) * (2 if "doubled" in flags else 1)
        return [{"1/y": y, "2/y": y + ("late" in flags)}]

    def tolerance(self, call: ExerciseCall, flags: Flags = RIGHT) -> list[Arrays]:
        return [{"1/y": np.float64(1e-6), "2/y": np.float64(1e-6)}]


def answered(flags: Sequence[str], noise: float = 0.0) -> tuple[str, tuple[str, ...], str]:
    sums = Sum()
    calls = sums.calls(np.random.default_rng(3))
    arrays = [{k: a + noise for k, a in sums.expected(calls[0], frozenset(flags))[0].items()}]
    judgement = judge(sums, calls, [Answer(arrays)])
    key = judgement.difference.key if judgement.difference else ""
    return judgement.status, judgement.mistakes, key


def test_a_right_answer_within_its_tolerance() -> None:
    assert answered([]) == ("met", (), "")
    assert answered([], 5e-7) == ("met", (), "")
    assert answered([], 5e-6)[0] == "not met"


def test_a_mistake_is_named_by_its_numbers_and_two_are() -> None:
    assert answered(["minus"]) == ("not met", ("minus",), "1/y")
    assert answered(["late"]) == ("not met", ("late",), "2/y")
    assert answered(["minus", "late"]) == ("not met", ("minus", "late"), "1/y")
    assert answered([], 1.0) == ("not met", (), "1/y")


def test_an_error_that_a_mistake_ends_in_is_named() -> None:
    sums = Sum()
    calls = sums.calls(np.random.default_rng(3))
    judgement = judge(sums, calls, [Answer(trouble=Trouble("ZeroDivisionError", "division"))])
    assert judgement.mistakes == ("divided",)
    assert judge(sums, calls, [Answer(trouble=Trouble("unwritten"))]).status == "unwritten"


def test_arrays_that_are_missing_misshaped_or_not_finite() -> None:
    right = [{"y": np.array([1.0, np.nan])}]
    close = [{"y": np.float64(0.1)}]
    assert first_difference([{"y": np.array([1.0, np.nan])}], right, close) is None
    for wrong in ({}, {"y": np.array([1.0])}, {"y": np.array([1.0, 2.0])}):
        assert first_difference([wrong], right, close) is not None
    assert distances(np.array(np.inf), np.array(0.0)) == np.inf


def test_the_first_difference_is_the_first_in_time_and_not_the_first_rank_s() -> None:
    """Rank 1 goes wrong in update 1, and rank 0 only because of it in update 2."""
    right = [{f"{step}/w": np.zeros(2) for step in (1, 2)} for _ in range(2)]
    close = [dict.fromkeys(own, np.float64(0.1)) for own in right]
    seen = [{**right[0], "2/w": np.ones(2)}, {key: np.ones(2) for key in right[1]}]
    found = first_difference(seen, right, close)
    assert found is not None
    assert (found.rank, found.key) == (1, "1/w")
    late = first_difference([seen[0], right[1]], right, close)
    assert late is not None
    assert (late.rank, late.key) == (0, "2/w")


def test_results_without_an_update_come_after_those_before_them() -> None:
    order = time_order(["loss", "1/w", "2/w", "m"])
    assert sorted(order, key=lambda key: order[key]) == ["loss", "1/w", "2/w", "m"]
    assert order["m"] > order["2/w"]


def test_the_search_for_combined_mistakes_is_bounded_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Single mistakes are always tried; of the combinations a number, on every machine the same."""
    sums = Sum()
    calls = sums.calls(np.random.default_rng(3))
    two = [Answer(sums.expected(calls[0], frozenset({"doubled", "late"})))]
    one = [Answer(sums.expected(calls[0], frozenset({"late"})))]
    work = SearchWork()
    assert set(judge(sums, calls, two, work=work).mistakes) == {"doubled", "late"}
    assert (work.combinations, work.is_bounded) == (3, False)
    monkeypatch.setattr(search_work, "MAX_COMBINATIONS", 2)
    found = judge(sums, calls, two)
    assert (found.mistakes, found.is_bounded) == ((), True)
    found = judge(sums, calls, one)
    assert (found.mistakes, found.is_bounded) == (("late",), False)


def test_a_far_prediction_needs_no_tolerance_and_a_near_one_does() -> None:
    close = [{"y": np.float64(1e-6)}]
    far = find_coarse_limit(close)
    seen = [{"y": np.array([1.0, 2.0])}]
    assert not is_far_off(seen, [{"y": np.array([1.0, 2.001])}], far)
    for other in ([1.0, 2.1], [1.0], [1.0, np.nan]):
        assert is_far_off(seen, [{"y": np.array(other)}], far)
    assert is_far_off(seen, [{"z": np.zeros(2)}], far)
    counted = find_coarse_limit([{"elements": np.asarray(4.0)}])
    assert not is_far_off([{"elements": np.array(80)}], [{"elements": np.array(84)}], counted)
