"""``dualml new``, ``check``, ``report`` and ``grade`` as people type them."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.backends import require

from dualml.course.catalogue import load_plants
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

pytestmark = pytest.mark.whole
EXERCISE = find_exercise("optim_torch")[1]
CALL = [sys.executable, "-m", "dualml"]


def dualml(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*CALL, *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    require("torch")
    done = dualml("new", "lab1", tmp_path / "my lab", "--backend", "torch")
    assert done.returncode == 0, done.stderr
    return tmp_path / "my lab"


def solve(workspace: Path, mistake: str = "") -> None:
    text = read_solution(EXERCISE)
    for plant in load_plants("lab1"):
        if plant.name == mistake and plant.file == EXERCISE.name and plant.target == "Adam":
            text = plant.patch.apply(text)
    (workspace / EXERCISE.name).write_text(text, "utf-8")


def test_a_skeleton_is_not_written_yet(workspace: Path) -> None:
    done = dualml("check", "--json", cwd=workspace)
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    status = {r["status"] for f in told["files"] for r in f["requirements"]}
    assert status == {"unwritten"}
    assert not told["met"]


def test_a_solution_meets_everything_and_a_mistake_is_named(workspace: Path) -> None:
    solve(workspace)
    done = dualml("check", cwd=workspace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    solve(workspace, "never_corrected")
    told = json.loads(dualml("check", "Adam", "--hints", 3, "--json", cwd=workspace).stdout)
    requirements = [r for f in told["files"] for r in f["requirements"]]
    assert {r["target"] for r in requirements} == {"Adam"}
    named = {m["name"] for r in requirements for m in r["mistakes"]}
    assert named == {"never_corrected"}
    shallow = dualml("check", "Adam", "--hints", 0, "--json", cwd=workspace).stdout
    assert "never_corrected" not in shallow
    assert '"principle"' not in shallow


def test_a_folder_can_be_named_from_elsewhere(workspace: Path) -> None:
    solve(workspace)
    done = dualml("check", workspace, "gd.update", cwd=workspace.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("check", "Adm"), "did you mean 'Adam'"),
        (("check", "--hints", "4"), "--hints"),
        (("new", "lab1", "."), "not empty"),
        (("new", "lab12", "x"), "lab1"),
        (("grade", ".", "--secret", ""), "empty"),
        (("grade", "."), "--secret"),
        (("grade", "nowhere", "--secret", "s"), "no folder"),
        (("grade", ".", "--secret", "s", "--backend", "jax"), "--backend"),
    ],
)
def test_wrong_words_are_one_line(workspace: Path, words: tuple[str, ...], text: str) -> None:
    done = dualml(*words, cwd=workspace)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_watching_judges_what_was_saved(workspace: Path) -> None:
    solve(workspace, "sign")
    log = workspace.parent / "log"
    with log.open("wb") as out:
        watching = subprocess.Popen(
            [*CALL, "check", "--watch"], cwd=workspace, stdout=out, stderr=out
        )
    try:
        wait_for(log, "waiting for a file", 1)
        solve(workspace)
        began = time.monotonic()
        wait_for(log, "waiting for a file", 2)
        took = time.monotonic() - began
    finally:
        watching.send_signal(2)
        code = watching.wait(20)
    assert "✗" in log.read_text("utf-8").partition("waiting for a file")[0]
    assert "✗" not in log.read_text("utf-8").partition("waiting for a file")[2]
    assert took < 10.0
    assert code == 130


def wait_for(log: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + 60
    while log.read_text("utf-8").count(text) < times:
        assert time.monotonic() < deadline, log.read_text("utf-8")
        time.sleep(0.05)


def test_a_report_has_the_students_text_and_curves(workspace: Path) -> None:
    solve(workspace, "sign")
    report = workspace / "report.md"
    report.write_text(report.read_text("utf-8") + "\nMy own <b>words</b>.\n", "utf-8")
    done = dualml("report", workspace)
    assert done.returncode == 0, done.stderr
    page = (workspace / "report.html").read_text("utf-8")
    assert "My own &lt;b&gt;words&lt;/b&gt;." in page
    assert "figure-curves" in page
    assert "different" in page
    report.write_text("# Mine\n\n## 1 Purpose\n", "utf-8")
    done = dualml("report", workspace)
    assert done.returncode == 2
    assert "no part 3" in done.stderr


def test_a_class_is_graded_once(workspace: Path, tmp_path: Path) -> None:
    handed = tmp_path / "handed in"
    for student, mistake in (("韩 梅梅", ""), ("李雷", "eps_inside"), ("b", "sign")):
        solve(workspace, mistake)
        (handed / student).mkdir(parents=True)
        shutil.copy(workspace / EXERCISE.name, handed / student)
    (handed / "broken.zip").write_bytes(b"PK")
    words = ("grade", handed, "--secret", "s", "--backend", "torch", "--out", tmp_path / "out")
    done = dualml(*words)
    assert done.returncode == 0, done.stderr
    rows = {row["student"]: row for row in read(tmp_path / "out" / "grades.csv")}
    points = {student: float(row["points"]) for student, row in rows.items()}
    assert points["broken"] == 0
    assert points["韩 梅梅"] == len(EXERCISE.requirements)
    assert 0 < points["李雷"] < points["韩 梅梅"]
    assert "zip" in rows["broken"]["note"]
    overview = (tmp_path / "out" / "overview.html").read_text("utf-8")
    assert "eps_inside" in overview
    page = (tmp_path / "out" / "students" / "李雷" / "index.html").read_text("utf-8")
    assert "weight" in page
    for name in ("gradescope", "prairielearn"):
        path = tmp_path / "out" / "students" / "李雷" / name / "results.json"
        assert json.loads(path.read_text("utf-8"))["tests"]
    results = sorted((tmp_path / "out" / "students").glob("*/result.json"))
    before = [path.stat().st_mtime_ns for path in results]
    assert all(b"secret" not in path.read_bytes() for path in results)
    assert dualml(*words).returncode == 0
    assert [path.stat().st_mtime_ns for path in results] == before
    solve(workspace)
    shutil.copy(workspace / EXERCISE.name, handed / "b")
    assert dualml(*words).returncode == 0
    changed = [p for p, b in zip(results, before, strict=True) if p.stat().st_mtime_ns != b]
    assert [path.parent.name for path in changed] == ["b"]


def read(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        yield from csv.DictReader(stream)
