"""Grading a class with odd submissions: a fault affects one student only, and no student if the
machine is at fault."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
import time
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator

from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.exercise import ExerciseFile, MachineFault, Trouble
from dualml.course.grading import grade as grading
from dualml.course.grading import rubric as rubrics
from dualml.course.grading import unpacking
from dualml.course.grading.finish import finish
from dualml.course.grading.names import MAX_NAME_BYTES, folder_names, readable_names
from dualml.course.grading.submissions import (
    Submission,
    SubmissionRefused,
    find_submissions,
    unpack,
)
from dualml.course.isolation.detect import WALLS
from dualml.course.judge import Judgement
from dualml.course.labs import load_lab
from dualml.course.source import examine
from dualml.interface.cli import grade as grade_command
from dualml.interface.schemas import schema_text

LAB1 = load_lab("lab1")
TORCH = LAB1.files[0]
FULL = float(len(TORCH.requirements))
Results = dict[str, dict[str, Any]]


def judge(file: ExerciseFile, path: Path, seed: int, **more: object) -> CheckResult:
    """Judge that every requirement is met if the file says ``right``, and none otherwise."""
    problems = examine(path, file)
    right = path.is_file() and b"right" in path.read_bytes()
    judgements = [Judgement(r, "met" if right else "not judged") for r in file.requirements]
    return CheckResult(file, path, [] if right else problems, judgements, seed)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(grading, "check", judge)
    return monkeypatch


def hand_in(folder: Path, *students: str, text: str = "right = 1\n") -> None:
    for student in students:
        (folder / student).mkdir(parents=True)
        (folder / student / TORCH.name).write_text(text)


def grade_class(folder: Path, out: Path, lang: str = "en") -> Results:
    request = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(), lang, out)
    found, _ = find_submissions(folder, out)
    out.mkdir(exist_ok=True)
    results = grading.grade(request, found, 2)
    written, failures = finish(request, results, Messages(lang))
    assert failures == {}
    assert all(path.is_file() for path in written)
    return results


def rows(out: Path) -> dict[str, dict[str, str]]:
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as stream:
        return {row["student"]: row for row in csv.DictReader(stream)}


def failing_for(student: str, error: Exception) -> Callable[..., CheckResult]:
    def check(file: ExerciseFile, path: Path, seed: int, **more: object) -> CheckResult:
        if path.is_file() and student in path.read_text("utf-8"):
            raise error
        return judge(file, path, seed)

    return check


# --- one student, one fault ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MachineFault("the server was killed"), "the server was killed"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/x"),
            "no space is left on the disk",
        ),
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open"),
        (MemoryError(), "no memory is left"),
        (RuntimeError("can't start new thread"), "no more processes can be started"),
    ],
)
def test_the_machines_fault_is_no_grade(
    error: Exception, why: str, tmp_path: Path, fake: pytest.MonkeyPatch
) -> None:
    handed, out = tmp_path / "in", tmp_path / "out"
    hand_in(handed, "ann", "zoe")
    hand_in(handed, "bob", text="right = 'bob'\n")
    fake.setattr(grading, "check", failing_for("bob", error))
    results = grade_class(handed, out)
    assert [results[s]["points"] for s in ("ann", "bob", "zoe")] == [FULL, None, FULL]
    assert results["bob"]["not_graded"] == why
    assert results["bob"]["most"] == FULL
    assert results["ann"]["not_graded"] is None
    row = rows(out)["bob"]
    assert row["points"] == ""
    assert row["optim_torch:gd.update"] == ""
    assert why in row["note"]
    folder = out / "students" / "bob"
    assert why in (folder / "index.html").read_text("utf-8")
    assert why in (out / "overview.html").read_text("utf-8")
    stored = json.loads((folder / "result.json").read_text("utf-8"))
    assert (stored["points"], stored["not_graded"], stored["key"]) == (None, why, "")
    scope = json.loads((folder / "gradescope" / "results.json").read_text("utf-8"))
    assert "score" not in scope
    assert why in scope["output"]
    learn = json.loads((folder / "prairielearn" / "results.json").read_text("utf-8"))
    assert learn["gradable"] is False
    assert "score" not in learn
    fake.setattr(grading, "check", judge)
    assert grade_class(handed, out)["bob"]["points"] == FULL


def test_a_fault_of_ours_is_of_one_submission(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    hand_in(tmp_path / "in", "ann")
    hand_in(tmp_path / "in", "bob", text="right = 'bob'\n")
    fake.setattr(grading, "check", failing_for("bob", UnicodeEncodeError("x", "\ud800", 0, 1, "")))
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert results["ann"]["points"] == FULL
    assert results["bob"]["points"] == 0.0
    assert "dualml itself failed" in results["bob"]["refused"]


def test_what_a_student_prints_is_text_and_nothing_else(
    tmp_path: Path, fake: pytest.MonkeyPatch
) -> None:
    evil = "\ud800 \x1b[31m \u202e <script>alert(1)</script> \0 " + "x" * 100_000

    def check(file: ExerciseFile, path: Path, seed: int, **more: object) -> CheckResult:
        trouble = Trouble("Err\x1b\ud800", evil, TORCH.name, 1, evil)
        if "ann" in path.read_text("utf-8"):
            return judge(file, path, seed)
        judgements = [Judgement(r, "not met", trouble) for r in file.requirements]
        return CheckResult(file, path, [], judgements, seed)

    fake.setattr(grading, "check", check)
    hand_in(tmp_path / "in", "ann", text="right = 'ann'\n")
    hand_in(tmp_path / "in", "bob")
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert results["ann"]["points"] == FULL
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for path in files:
        text = path.read_text("utf-8")
        assert not [odd for odd in ("\x1b", "\u202e", "\0") if odd in text], path
        assert path.suffix != ".html" or "<script>alert" not in text
    assert len(files) == 2 + 2 * 4
    bob = results["bob"]["files"][0]["requirements"][0]["trouble"]
    assert bob["message"].startswith("\\ud800 \\x1b[31m \\u202e")
    assert len(bob["message"]) < 5000


def test_a_result_that_cannot_be_written_is_none(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    hand_in(tmp_path / "in", "ann", "bob")
    write = grading.write_json

    def full(path: Path, value: Any) -> None:
        if path.parent.name == "bob":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, value)

    fake.setattr(grading, "write_json", full)
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert (results["ann"]["points"], results["bob"]["points"]) == (FULL, None)
    fake.setattr(grading, "write_json", write)
    assert grade_class(tmp_path / "in", tmp_path / "out")["bob"]["points"] == FULL


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    hand_in(tmp_path / "in", "ann", "bob")
    out = tmp_path / "out"
    (out / "students" / "ann" / "index.html").mkdir(parents=True)
    (out / "overview.html").mkdir()
    request = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(), "en", out)
    results = grading.grade(request, find_submissions(tmp_path / "in")[0], 1)
    written, failures = finish(request, results, Messages("en"))
    assert list(failures) == ["ann", "overview.html"]
    assert written == [out / "grades.csv"]
    assert (out / "students" / "bob" / "index.html").is_file()


@pytest.mark.parametrize("text", ['{"key": 3}', "[1, 2]", "{", '{"key": ""}', "[" * 100_000])
def test_a_result_file_that_is_none_is_written_again(
    text: str, tmp_path: Path, fake: pytest.MonkeyPatch
) -> None:
    hand_in(tmp_path / "in", "ann")
    kept = tmp_path / "out" / "students" / "ann" / "result.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    assert grade_class(tmp_path / "in", tmp_path / "out")["ann"]["points"] == FULL
    assert json.loads(kept.read_text("utf-8"))["points"] == FULL


def test_a_submission_that_may_not_be_read(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    hand_in(tmp_path / "in", "ann", "bob")
    scan = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("bob"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    fake.setattr(unpacking.os, "scandir", scandir)
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert results["ann"]["points"] == FULL
    assert results["bob"]["points"] == 0.0
    assert "Permission denied" in results["bob"]["refused"]
    fake.setattr(unpacking.os, "scandir", scan)
    assert grade_class(tmp_path / "in", tmp_path / "out")["bob"]["points"] == FULL


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coding", "names"),
    [
        ("gbk", ("李雷", "韩梅梅")),
        ("big5", ("陳大文", "王小明", "林志玲")),
    ],
)
def test_names_that_unzip_left_in_another_encoding(
    coding: str, names: tuple[str, ...], tmp_path: Path, fake: pytest.MonkeyPatch
) -> None:
    handed = tmp_path / "in"
    hand_in(handed, "ann")
    for name in names:
        folder = os.fsencode(handed) + b"/" + name.encode(coding)
        try:
            os.mkdir(folder)
        except OSError:
            pytest.skip("this file system has no such names")
        with open(folder + b"/" + TORCH.name.encode(), "w") as stream:
            stream.write("right = 1\n")
    results = grade_class(handed, tmp_path / "out")
    assert set(results) == {"ann", *names}
    assert {r["points"] for r in results.values()} == {FULL}
    assert {p.name for p in (tmp_path / "out" / "students").iterdir()} == {"ann", *names}


def test_names_that_a_file_system_takes_for_one(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    composed = unicodedata.normalize("NFC", "é")
    names = [
        "bob",
        "Bob",
        composed,
        unicodedata.normalize("NFD", "é"),
        "-rf",
        "a\nb",
        "a\x1b[2J",
        "x" * 255,
        "x" * 254 + "y",
        "con",
        "trail.",
        "李" * 85,
        "..a",
        "a:b",
        "a\\nb",
    ]
    hand_in(tmp_path / "in", *[name for name in names if not name.startswith(".")])
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert len(results) == len(names) - 1
    assert {r["points"] for r in results.values()} == {FULL}
    folders = [path.name for path in (tmp_path / "out" / "students").iterdir()]
    same = {unicodedata.normalize("NFC", name).casefold() for name in folders}
    assert len(same) == len(results) == len(folders)
    assert all(len(os.fsencode(name)) <= MAX_NAME_BYTES and name.isprintable() for name in folders)
    assert all(name[0] != "-" for name in folders)
    assert all(student.isprintable() for student in results)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/etc", "~", "", "nul.txt", "a" * 151])
def test_a_folder_of_results_is_inside(name: str) -> None:
    (folder,) = folder_names([name])
    assert folder not in ("", ".", "..", name)
    assert "/" not in folder


def test_names_are_shown_apart() -> None:
    raw = ["李雷".encode(), "李雷".encode("gbk"), b"a\nb", b"a\\nb", b"\xff\xff\xff"]
    names = readable_names(raw)
    assert len(set(names)) == 5
    assert all(name.isprintable() for name in names)
    hashed = readable_names([b"a\nb", b"a\\nb"])
    assert len(set(readable_names([b"a\nb", b"a\\nb", hashed[0].encode()]))) == 3


# --- odd submissions -----------------------------------------------------------------------------


def zipped(path: Path, *members: tuple[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Submission:
    with zipfile.ZipFile(path, "w", how) as out:
        for name, content in members:
            out.writestr(name, content)
    return Submission(path.stem, path)


def test_only_regular_files_are_opened(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    handed = tmp_path / "in"
    hand_in(handed, "ann")
    hand_in(tmp_path / "elsewhere", "secret")
    for name in ("pipe", "device", "linked", "socket"):
        (handed / name).mkdir()
    os.mkfifo(handed / "pipe" / TORCH.name)
    os.mkfifo(handed / "zip.zip")
    os.mkfifo(handed / "fifo")
    (handed / "linked" / TORCH.name).symlink_to("/dev/zero")
    (handed / "outside").symlink_to(tmp_path / "elsewhere" / "secret")
    (handed / "loop").symlink_to(handed / "loop")
    (handed / "endless.zip").symlink_to("/dev/zero")
    try:
        os.mknod(handed / "device" / TORCH.name, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except OSError:
        os.mkfifo(handed / "device" / TORCH.name)
    began = time.monotonic()
    results = grade_class(handed, tmp_path / "out")
    assert time.monotonic() - began < 20
    assert results.pop("ann")["points"] == FULL
    assert set(results) == {"pipe", "device", "linked", "socket", "zip", "outside", "endless"}
    assert {r["points"] for r in results.values()} == {0.0}
    assert all(r["refused"] for r in results.values())
    assert "a link" in results["outside"]["refused"]


def test_folders_and_zips_with_very_many_entries(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    handed = tmp_path / "in"
    hand_in(handed, "ann", "many")
    for number in range(10_000):
        (handed / "many" / f"{number}.txt").touch()
    directory = io.BytesIO()
    with zipfile.ZipFile(directory, "w") as out:
        for number in range(unpacking.ENTRIES + 1):
            out.writestr(f"{number}", b"")
    (handed / "entries.zip").write_bytes(directory.getvalue())
    began = time.monotonic()
    results = grade_class(handed, tmp_path / "out")
    assert time.monotonic() - began < 20
    assert results["ann"]["points"] == FULL
    assert "2,000 files" in results["many"]["refused"]
    assert "20,000 files" in results["entries"]["refused"]


def test_members_of_zips_that_are_not_unpacked(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", (TORCH.name, b"x = 1"))
    nested = zipped(tmp_path / "nested.zip", ("inner.zip", inner.path.read_bytes()))
    with pytest.raises(SubmissionRefused, match="none"):
        unpack(nested, tmp_path / "1", [TORCH.name])
    packed = zipped(tmp_path / "lzma.zip", (TORCH.name, b"x = 1"), how=zipfile.ZIP_LZMA)
    with pytest.raises(SubmissionRefused, match="compression method 14"):
        unpack(packed, tmp_path / "2", [TORCH.name])
    beside = zipped(
        tmp_path / "b.zip",
        (TORCH.name, b"x = 1"),
        ("notes.txt", b"y"),
        ("x" * 300 + ".md", b"z"),
        ("dir.py\\", b""),
    )
    unpack(beside, tmp_path / "3", [TORCH.name])
    assert [path.name for path in (tmp_path / "3").iterdir()] == [TORCH.name]
    long = zipped(tmp_path / "long.zip", (TORCH.name, b"x = 1"), ("y" * 300 + ".py", b""))
    with pytest.raises(SubmissionRefused, match="unreadable"):
        unpack(long, tmp_path / "4", [TORCH.name])
    encrypted = bytearray(zipped(tmp_path / "e.zip", (TORCH.name, b"x = 1")).path.read_bytes())
    encrypted[6] |= 1
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "e.zip").write_bytes(encrypted)
    with pytest.raises(SubmissionRefused, match=r"unreadable.*password"):
        unpack(Submission("e", tmp_path / "e.zip"), tmp_path / "5", [TORCH.name])


@pytest.mark.parametrize(
    ("coding", "name"),
    [
        ("gbk", "作业/李雷的/"),
        ("big5", "功課/陳大文/"),
        ("utf-8", "作业/李雷的/"),
        ("cp437", "Übung/"),
    ],
)
def test_names_in_zips_without_the_flag_of_utf8(coding: str, name: str, tmp_path: Path) -> None:
    raw = name.encode(coding)
    plain = "n" * len(raw)
    path = zipped(tmp_path / "z.zip", (f"{plain}{TORCH.name}", b"x = 1")).path
    path.write_bytes(path.read_bytes().replace(plain.encode(), raw))
    handed = unpack(Submission("z", path), tmp_path / "w", [TORCH.name])
    assert str(handed.paths[TORCH.name].relative_to(tmp_path / "w")) == f"{name}{TORCH.name}"


def test_a_machine_without_space_refuses_no_submission(
    tmp_path: Path, fake: pytest.MonkeyPatch
) -> None:
    hand_in(tmp_path / "in", "ann", "bob")
    whole = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        if "dualml-" in str(self):
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return whole(self, content)

    fake.setattr(Path, "write_bytes", full)
    results = grade_class(tmp_path / "in", tmp_path / "out")
    assert {(r["points"], r["refused"]) for r in results.values()} == {(None, None)}


def test_a_class_of_three_hundred(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    handed, out = tmp_path / "in", tmp_path / "out"
    hand_in(handed, *(f"s{n:03}" for n in range(280)))
    for number in range(20):
        (handed / f"broken{number}.zip").write_bytes(b"PK")
    began = time.monotonic()
    results = grade_class(handed, out)
    assert len(results) == len(rows(out)) == 300
    assert sum(r["points"] == FULL for r in results.values()) == 280
    fake.setattr(grading, "check", failing_for("right", ZeroDivisionError("asked again")))
    assert grade_class(handed, out) == results
    assert time.monotonic() - began < 60


# --- the command ---------------------------------------------------------------------------------


def command(folder: Path, out: Path, **more: Any) -> int:
    try:
        grade_command.grade(folder, secret="hidden-word", out=out, backend="torch", **more)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_the_command_says_what_is_left(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_in(tmp_path / "in", "ann")
    hand_in(tmp_path / "in", "bob", text="right = 'bob'\n")
    fake.setattr(grade_command, "check_installed", lambda files: None)
    fake.setattr(grade_command, "isolation_for", lambda *about: WALLS)
    fake.setattr(grading, "check", failing_for("bob", MachineFault("killed")))
    assert command(tmp_path / "in", tmp_path / "out", json=True) == 1
    said = capsys.readouterr()
    answer = json.loads(said.out)
    Draft202012Validator(json.loads(schema_text("grade"))).validate(answer)
    assert answer["students"]["bob"] == {
        "points": None,
        "most": FULL,
        "refused": None,
        "not_graded": "killed",
    }
    assert "Not graded: 1 of 2" in said.err
    fake.setattr(grading, "check", judge)
    assert command(tmp_path / "in", tmp_path / "out") == 0
    said = capsys.readouterr()
    assert "Submissions graded: 2." in said.out
    assert "--secret-file" in said.err
    kept = (path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert all(b"hidden-word" not in path.read_bytes() for path in kept)
    assert "hidden-word" not in said.out + said.err


def test_results_beside_the_submissions_are_none(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_in(tmp_path / "in", "ann")
    fake.setattr(grade_command, "check_installed", lambda files: None)
    fake.setattr(grade_command, "isolation_for", lambda *about: WALLS)
    for _ in range(2):
        assert command(tmp_path / "in", tmp_path / "in" / "grades") == 0
    assert set(rows(tmp_path / "in" / "grades")) == {"ann"}
    with pytest.raises(grade_command.UserError, match="inside of a submission"):
        command(tmp_path / "in", tmp_path / "in" / "ann" / "out")
    with pytest.raises(grade_command.UserError, match="has its results"):
        command(tmp_path / "in" / "grades" / "students", tmp_path / "in" / "grades")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MachineFault("killed"), "killed"),
        (MemoryError(), "no memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
    ],
)
def test_a_check_that_the_machine_ends_is_one_line(error: Exception, why: str) -> None:
    said = pytest.raises(grade_command.UserError, match=f"optim_torch.py is not judged: {why}")
    unjudged = f"{TORCH.name} is not judged"
    with said, grade_command.report_machine_faults(unjudged):
        raise error
    with pytest.raises(ZeroDivisionError), grade_command.report_machine_faults(unjudged):
        raise ZeroDivisionError
