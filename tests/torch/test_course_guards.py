"""Forbidden actions of a student's code and their messages, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dualml.course.check import CheckResult, check
from dualml.course.isolation import client
from dualml.course.labs import find_exercise
from dualml.course.workspace import read_solution

EXERCISE = find_exercise("optim_torch")[1]
LINE = 'p.sub_(group["lr"] * p.grad)'
SECONDS = 3.0


def judged(code: str, folder: Path, seconds: float = SECONDS) -> CheckResult:
    """Judge gradient descent with this code in place of its update."""
    assert read_solution(EXERCISE).count(LINE) == 1
    path = folder / EXERCISE.name
    path.write_text(read_solution(EXERCISE).replace(LINE, code), "utf-8")
    return check(EXERCISE, path, 7, select=lambda r: r.target == "GD", seconds=seconds)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os.fork()", "os.fork"),
        ("import os; os.system('true')", "os.system"),
        ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
        ("import os; os.kill(os.getppid(), 9)", "os.kill"),
        ("input('?')", "input()"),
        ("import os; os.remove('{outside}')", "os.remove"),
        ("import shutil; shutil.rmtree('{folder}')", "shutil.rmtree"),
        ("open('{outside}', 'w')", "write"),
        ("import os; os.rename('{outside}', 'x')", "os.rename"),
        ("import socket; socket.create_connection(('192.0.2.1', 80), 1)", "socket"),
        ("import socket; socket.socket().bind(('0.0.0.0', 0))", "socket"),
        ("import dualml_torch.algorithms.optim", "import dualml_torch.algorithms.optim"),
        ("from dualml.algorithms.optim import RULES", "import dualml.algorithms.optim"),
        (
            "import importlib; importlib.import_module('dualml_torch.algorithms.optim')",
            "import dualml_torch",
        ),
        ("getattr(torch.optim, 'Ad' + 'am')([p], lr=1.0)", "torch.optim.Adam"),
        ("getattr(torch, '_fused_' + 'sgd_')([p], [p.grad], [])", "torch._fused_sgd_"),
        ("import sys; open(sys.modules['dualml'].__path__[0] + '/course/judge.py')", "read"),
    ],
)
def test_what_is_refused_is_named_with_its_line(code: str, message: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    work = tmp_path / "work"
    work.mkdir()
    checked = judged(code.format(outside=outside, folder=tmp_path), work)
    trouble = checked.judgements[0].trouble
    assert trouble is not None
    assert trouble.kind == "forbidden"
    assert trouble.message.startswith(message)
    assert trouble.text.startswith(code.partition("{")[0][:20])
    assert outside.read_text() == "kept"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        "\n                    while True:\n                        try:\n"
        "                            pass\n                        except Exception:\n"
        "                            pass",
    ],
)
def test_what_never_ends_is_ended_once(code: str, tmp_path: Path) -> None:
    began = time.monotonic()
    checked = judged(code, tmp_path, seconds=1.0)
    assert {j.trouble.kind for j in checked.judgements if j.trouble} == {"timeout"}
    assert len(checked.judgements) > 2
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("x = torch.ones(3_000_000_000)", "RuntimeError", "allocate"),
        ("x = [0] * 10**10", "MemoryError", ""),
        ("print('x' * 80_000_000)", "OSError", "large"),
        ("raise SystemExit(0)", "SystemExit", "0"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError", "recursion"),
        ("import os; os._exit(0)", "died", ""),
        ("import ctypes; ctypes.string_at(0)", "died", "SIGSEGV"),
    ],
)
def test_what_ends_the_process_ends_only_that(
    code: str, kind: str, message: str, tmp_path: Path
) -> None:
    checked = judged(code, tmp_path)
    trouble = checked.judgements[0].trouble
    assert trouble is not None
    assert trouble.kind == kind
    assert message in trouble.message


def test_other_functions_are_judged_beside_one_that_kills_the_process(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE).replace(LINE, "import os; os._exit(3)"), "utf-8")
    checked = check(EXERCISE, path, 7, seconds=SECONDS)
    met = {j.requirement.target for j in checked.judgements if j.status == "met"}
    assert met == {"SGD", "Adam"}


def test_files_of_its_own_and_helpers_beside_it_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def step(p, lr):\n    p.sub_(lr * p.grad)\n")
    code = 'from helper import step; step(p, group["lr"]); open("log", "w").write("x")'
    assert all(j.status == "met" for j in judged(code, tmp_path).judgements)
    assert not (tmp_path / "log").exists()


def test_nothing_of_it_is_left(tmp_path: Path) -> None:
    judged("import time; time.sleep(1000)", tmp_path, seconds=1.0)
    assert client.servers
    deadline = time.monotonic() + 5.0
    while left := [
        p
        for s in client.servers.values()
        for p in psutil.Process(s.process.pid).children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_a_class_is_not_graded_without_walls_unless_somebody_says_so(tmp_path: Path) -> None:
    (tmp_path / "class" / "ann").mkdir(parents=True)
    (tmp_path / "class" / "ann" / EXERCISE.name).write_text(read_solution(EXERCISE), "utf-8")
    (tmp_path / "secret").write_text("a long secret of this class")
    (tmp_path / "secret").chmod(0o600)
    grade = [
        sys.executable,
        "-P",
        "-m",
        "dualml",
        "grade",
        str(tmp_path / "class"),
        "--backend",
        "torch",
        "--out",
        str(tmp_path / "out"),
        "--secret-file",
        str(tmp_path / "secret"),
    ]
    none = os.environ | {"DUALML_ISOLATION": "none"}
    done = subprocess.run(grade, capture_output=True, text=True, check=False, env=none)
    assert done.returncode == 2
    assert "--unisolated" in done.stderr
    assert not (tmp_path / "out" / "grades.csv").exists()
    words = [*grade, "--unisolated", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=none)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["isolation"] == "none"
    assert answer["students"]["ann"]["points"] == answer["students"]["ann"]["most"]
    for name in ("grades.csv", "overview.html", "students/ann/index.html"):
        assert "without isolation" in (tmp_path / "out" / name).read_text("utf-8")


def test_what_a_file_prints_before_it_fails_to_load_is_shown(tmp_path: Path) -> None:
    path = tmp_path / EXERCISE.name
    path.write_text(read_solution(EXERCISE) + "\nprint('so far')\n1 / 0\n", "utf-8")
    checked = check(EXERCISE, path, 7, select=lambda r: r.target == "GD", seconds=SECONDS)
    assert "so far" in checked.printed
    assert not any(judgement.status == "met" for judgement in checked.judgements)


def test_an_update_that_moves_nothing_is_named(tmp_path: Path) -> None:
    checked = judged('p = p - group["lr"] * p.grad', tmp_path)
    assert checked.judgements[0].mistakes == ("nothing",)


def test_what_was_drawn_follows_from_the_seed(tmp_path: Path) -> None:
    wrong = "p.sub_(p.grad)"
    one, two = judged(wrong, tmp_path), judged(wrong, tmp_path)
    assert one.judgements[0].difference == two.judgements[0].difference
    path = tmp_path / EXERCISE.name
    other = check(EXERCISE, path, 8, select=lambda r: r.target == "GD")
    assert other.judgements[0].difference != one.judgements[0].difference
    assert os.path.exists(path)
