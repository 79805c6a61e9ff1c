"""Fuzzed submissions: folders and zips with odd names, types and texts."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_cases import cases, entries, try_cases
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.exercise import ExerciseFile, MachineFault, Trouble
from dualml.course.grading import grade as grading
from dualml.course.grading import rubric as rubrics
from dualml.course.grading.finish import finish
from dualml.course.grading.submissions import find_submissions
from dualml.course.judge import Judgement
from dualml.course.labs import load_lab
from dualml.course.source import examine, read_program

LAB1 = load_lab("lab1")
TORCH = LAB1.files[0]
FULL = float(len(TORCH.requirements))
RIGHT = "# right: 李雷\nx = 1\n"
ANY = st.text(st.characters(), max_size=40)
CODINGS = st.sampled_from(["utf-8", "gbk", "big5", "utf-16", "utf-16-le", "utf-8-sig", "utf-32"])
CONTENTS = st.one_of(
    st.binary(max_size=300),
    ANY.map(lambda text: text.encode(errors="surrogatepass")),
    st.builds(lambda text, coding: text.encode(coding, "replace"), ANY, CODINGS),
    st.builds(
        lambda name, text: f"# coding: {name}\n{text}".encode(errors="replace"),
        st.sampled_from(["hex", "gbk", "utf-16", "x", "zlib", "unicode_escape"]),
        ANY,
    ),
    st.sampled_from(
        [
            b"",
            b"(" * 5000,
            b"x" + b".a" * 3000,
            b"import os\0",
            b"'" * 3 + b"\f" * 99,
            b"-" * 3000 + b"1",
            "\u2028\x85\x0b = 1".encode(),
            b"\r\r\n\n",
            b"eval\n" * 999,
        ]
    ),
)
ENDS = st.sampled_from(["", ".py", ".zip", ".ZIP", " ", ".", "/", "\\", ".py/"])
BYTES = st.binary(min_size=1, max_size=250).filter(lambda name: not {0, 47} & {*name})
NAMES = st.one_of(
    BYTES,
    st.sampled_from(
        [
            b"a\nb",
            b"\x1b[2J",
            b"-rf",
            b"x" * 255,
            b"con",
            b"~",
            b"Ann",
            b"ANN",
            b"\\",
            "作业".encode("gbk"),
            "功課".encode("big5"),
            "é".encode(),
            "é".encode(),
            b"grades.csv",
            b"students",
            "\u202e".encode(),
            b"%2e%2e",
            b"<b>&\"'",
        ]
    ),
)
MEMBERS = st.one_of(
    st.just(TORCH.name),
    st.builds(lambda a, b: a + b, ANY, ENDS),
    st.sampled_from(
        [
            "../x.py",
            "/x.py",
            "a/../../x.py",
            "C:\\x.py",
            "..\\x.py",
            "a/" * 30 + "x.py",
            "y" * 400,
            f"a/{TORCH.name}",
            f"b/{TORCH.name}/x.py",
            "workspace.toml",
        ]
    ),
)


def judge(file: ExerciseFile, path: Path, seed: int, **more: object) -> CheckResult:
    """Judge that every requirement is met if the text says ``right``, else at random from the
    text."""
    problems = examine(path, file)
    if any(problem.is_fatal for problem in problems):
        judgements = [Judgement(r, "not judged") for r in file.requirements]
        return CheckResult(file, path, problems, judgements, seed)
    text = read_program(path)
    if "right" in text:
        return CheckResult(file, path, [], [Judgement(r, "met") for r in file.requirements], seed)
    faults: list[Callable[[], Exception]] = [
        lambda: MachineFault(text),
        lambda: ZeroDivisionError(text),
        lambda: MemoryError(text),
        lambda: OSError(28, text),
        lambda: RuntimeError(text + "\ud800"),
    ]
    if len(text) % 7 < len(faults):
        raise faults[len(text) % 7]()
    trouble = Trouble(text, text + "\ud800", file.name, len(text), text)
    judgements = [Judgement(r, "not met", trouble) for r in file.requirements]
    return CheckResult(file, path, problems, judgements, seed)


def tree(draw: Callable[..., Any], place: bytes, depth: int = 0) -> None:
    """Draw a folder with arbitrary contents."""
    os.makedirs(place, exist_ok=True)
    for name in draw(st.lists(st.one_of(st.just(TORCH.name.encode()), NAMES), max_size=3)):
        path = place + b"/" + name
        kind = draw(st.sampled_from(["file", "file", "folder", "link", "loop", "pipe", "zip"]))
        with contextlib.suppress(OSError):  # there is one already, or the name is too long
            if kind == "folder" and depth < 3:
                tree(draw, path, depth + 1)
            elif kind in ("link", "loop"):
                os.symlink(
                    path
                    if kind == "loop"
                    else draw(
                        st.sampled_from(
                            [
                                b"/dev/zero",
                                b"/etc/passwd",
                                b"/",
                                b"..",
                                b"../..",
                                TORCH.name.encode(),
                            ]
                        )
                    ),
                    path,
                )
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "zip":
                pack(draw, path)
            elif not os.path.lexists(path):
                with open(path, "wb") as stream:
                    stream.write(draw(CONTENTS))


def pack(draw: Callable[..., Any], path: bytes) -> None:
    """Write a zip that may be truncated or changed."""
    if os.path.lexists(path):
        return
    with open(path, "w+b") as stream:
        with zipfile.ZipFile(stream, "w") as out:
            for name in draw(st.lists(MEMBERS, max_size=4)):
                how = draw(st.sampled_from([0, 8, 12, 14]))
                with contextlib.suppress(UnicodeError, ValueError):
                    info = zipfile.ZipInfo(name or "x")
                    info.external_attr = draw(st.sampled_from([0, 0o120777 << 16, 0o10644 << 16]))
                    out.writestr(info, draw(CONTENTS), how)
        content = bytearray(stream.seek(0) or stream.read())
        for _ in range(draw(st.sampled_from([0, 0, 1, 5]))):
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
        stream.seek(0)
        stream.write(content[: draw(st.sampled_from([len(content), len(content), 30]))])
        stream.truncate()


def right(handed: Path, name: str) -> None:
    (handed / name).mkdir(exist_ok=True)
    (handed / name / TORCH.name).write_text(RIGHT, "utf-8")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@cases(60, 3000)
def test_right_submissions_keep_their_points(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "check", judge)
    monkeypatch.setattr(
        grading.GradingRequest, "fingerprint", "mark"
    )  # which takes a while to make
    base = Path(tempfile.mkdtemp(prefix="dualml-doors-"))

    def case(draw: Callable[..., Any]) -> None:
        home = base / "case"
        handed, out = home / "in", home / "out"
        handed.mkdir(parents=True)
        try:
            for name in draw(st.lists(NAMES, min_size=1, max_size=4)):
                place = os.fsencode(handed) + b"/" + name
                with contextlib.suppress(OSError):
                    if draw(st.booleans()):
                        pack(draw, place + b".zip")
                    else:
                        tree(draw, place)
            for name in ("ann", "王小明"):
                right(handed, name)
            before = entries(home, out)
            grade(handed, out, draw(st.sampled_from(["en", "zh"])))
            assert entries(home, out) == before
        finally:
            shutil.rmtree(home)

    try:
        try_cases(count, case)
        assert list(base.iterdir()) == []
    finally:
        shutil.rmtree(base)


def grade(handed: Path, out: Path, lang: str) -> None:
    """Grade twice and check what was written."""
    request = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(once=True), lang, out)
    names = [
        p.stem if p.suffix.lower() == ".zip" and not p.is_dir() else p.name
        for p in handed.iterdir()
        if not p.name.startswith(".")
    ]
    if len({*names}) < len(names):
        with pytest.raises(UserError, match="two submissions"):
            find_submissions(handed, out)
        return
    found, _ = find_submissions(handed, out)
    out.mkdir()
    for _ in range(2):
        results = grading.grade(request, found, 2)
        written, failures = finish(request, results, Messages(lang))
        assert failures == {}
    with written[0].open(encoding="utf-8-sig", newline="") as stream:
        rows = {row["student"].removeprefix("'"): row for row in csv.DictReader(stream)}
    assert len(rows) == len(results) == len(found)
    assert [results[name]["points"] for name in ("ann", "王小明")] == [FULL, FULL]
    assert all(name.isprintable() for name in results)
    folders = [path.name for path in (out / "students").iterdir()]
    assert sorted(folders) == sorted(result["folder"] for result in results.values())
    assert len(folders) == len(results)
    assert {path.name for path in out.iterdir()} == {"students", "grades.csv", "overview.html"}
    for path in (path for path in out.rglob("*") if path.is_file()):
        text = path.read_text("utf-8")
        assert "\x1b" not in text
        if path.suffix == ".json":
            json.loads(text)
