"""Grading without running code: submissions, rubrics, tables, similar pairs."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path

import pytest

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.exercise import Trouble
from dualml.course.grading import grade as grading
from dualml.course.grading import rubric as rubrics
from dualml.course.grading.similarity import (
    K,
    W,
    compare_files,
    fingerprints,
    overlap_share,
    select_suspicious,
    tokens,
)
from dualml.course.grading.submissions import (
    Submission,
    SubmissionRefused,
    find_submissions,
    unpack,
)
from dualml.course.grading.tables import gradescope, prairielearn, safe_cell, write_csv
from dualml.course.judge import Judgement
from dualml.course.labs import LABS, load_lab
from dualml.course.rendering import problem_text
from dualml.course.source import Problem
from dualml.course.workspace import read_skeleton, read_solution

LAB1 = load_lab("lab1")
TORCH = LAB1.files[0]


def packed(path: Path, *members: tuple[str, bytes]) -> Submission:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members:
            out.writestr(name, content)
    return Submission(path.stem, path)


def test_zips_and_folders_with_any_name(tmp_path: Path) -> None:
    handed, work = tmp_path / "in", tmp_path / "work"
    (handed / "李 雷").mkdir(parents=True)
    (handed / "李 雷" / "optim_torch.py").write_text("x = 1")
    packed(handed / "韩 梅梅.zip", ("作业 1/optim_torch.py", b"x = 2"))
    (handed / "late.rar").write_bytes(b"Rar!")
    found, others = find_submissions(handed)
    assert others == ["late.rar"]
    assert [s.student for s in found] == ["李 雷", "韩 梅梅"]
    for number, submission in enumerate(found, 1):
        path = unpack(submission, work / str(number), [TORCH.name]).paths[TORCH.name]
        assert path.read_text() == f"x = {number}"


def test_names_that_chinese_windows_wrote(tmp_path: Path) -> None:
    name = "作业/optim_torch.py".encode("gbk").decode("cp437")
    submission = packed(tmp_path / "a.zip", (name, b"x = 1"))
    raw = (tmp_path / "a.zip").read_bytes()
    # The flag of UTF-8 that Python sets is not set by other programs.
    with zipfile.ZipFile(tmp_path / "a.zip") as zipped:
        info = zipped.infolist()[0]
    assert info.flag_bits & 0x800
    written = name.encode("utf-8")
    plain = name.encode("cp437").ljust(len(written), b"_")
    raw = raw.replace(written, plain)
    from dualml.course.grading.submissions import decode_member_name

    info.flag_bits, info.filename = 0, name
    assert decode_member_name(info) == "作业/optim_torch.py"
    assert submission.student == "a"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("../optim_torch.py", b"x")], "outside"),
        ([("/optim_torch.py", b"x")], "outside"),
        ([("a\\..\\..\\optim_torch.py", b"x")], "outside"),
        ([("optim_torch.py", bytes(60 << 20))], "bytes"),
        ([("readme.txt", b"x")], "none"),
        ([(f"{n}.txt", b"") for n in range(2100)], "files"),
        ([("/".join("a" * 20) + "/optim_torch.py", b"x")], "deep"),
    ],
)
def test_zips_that_are_refused(members: list[tuple[str, bytes]], why: str, tmp_path: Path) -> None:
    submission = packed(tmp_path / "a.zip", *members)
    with pytest.raises(SubmissionRefused, match=why):
        unpack(submission, tmp_path / "in" / "work", [TORCH.name])
    assert not (tmp_path / "optim_torch.py").exists()


def test_a_zip_with_a_link_and_one_that_is_none(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("optim_torch.py")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "l.zip", "w") as out:
        out.writestr(link, "/etc/passwd")
    with pytest.raises(SubmissionRefused, match="link"):
        unpack(Submission("l", tmp_path / "l.zip"), tmp_path / "w", [TORCH.name])
    (tmp_path / "n.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(SubmissionRefused, match="unreadable"):
        unpack(Submission("n", tmp_path / "n.zip"), tmp_path / "v", [TORCH.name])


def test_links_in_a_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "optim_torch.py").symlink_to("/etc/passwd")
    with pytest.raises(SubmissionRefused, match="none"):
        unpack(Submission("s", tmp_path / "s"), tmp_path / "w", [TORCH.name])


FILES = [file.name for file in LAB1.files]


def test_files_in_several_folders(tmp_path: Path) -> None:
    apart = packed(
        tmp_path / "a.zip",
        ("t/optim_torch.py", b"t = 1"),
        ("t/more/x.py", b"m = 1"),
        ("m/optim_ms.py", b"m = 2"),
        ("old/1/optim_ms.py", b"m = 0"),
    )
    handed = unpack(apart, tmp_path / "w", FILES)
    assert {name: path.read_text() for name, path in handed.paths.items()} == {
        "optim_torch.py": "t = 1",
        "optim_ms.py": "m = 2",
    }
    assert (handed.paths["optim_torch.py"].parent / "more" / "x.py").is_file()


def test_a_file_that_is_there_twice(tmp_path: Path) -> None:
    twice = packed(
        tmp_path / "b.zip",
        ("a/optim_torch.py", b"1"),
        ("b/optim_torch.py", b"2"),
        ("a/optim_ms.py", b"3"),
        ("b/optim_ms.py", b"3"),
    )
    handed = unpack(twice, tmp_path / "v", FILES)
    assert handed.twice == {"optim_torch.py": "a/optim_torch.py, b/optim_torch.py"}
    assert list(handed.paths) == ["optim_ms.py"]  # equal ones are one
    space = packed(
        tmp_path / "c.zip",
        ("a/optim_torch.py", b"1"),
        ("b/optim_torch.py", b"2"),
        ("b/workspace.toml", b""),
    )
    assert unpack(space, tmp_path / "u", FILES).paths["optim_torch.py"].read_text() == "2"
    asked = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(), "en", tmp_path / "out")
    (file,) = grading.grade(asked, [twice], 1)["b"]["files"]
    assert [problem["kind"] for problem in file["problems"]] == ["twice"]


def test_one_submission_does_not_end_the_grading_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("good", "odd", "worse")
    handed = [
        packed(tmp_path / f"{n}.zip", ("optim_torch.py", b"# coding: hex\nx=1")) for n in names
    ]
    (tmp_path / "dir" / "optim_torch.py").mkdir(parents=True)
    handed.append(Submission("dir", tmp_path / "dir"))
    raw = bytearray((tmp_path / "odd.zip").read_bytes())
    raw[45:55] = b"\xff" * 10  # in the packed data
    (tmp_path / "odd.zip").write_bytes(raw)
    whole = grading.check

    def failing(file: object, path: Path, seed: int, **more: object) -> CheckResult:
        if "worse" in str(path.parent.parent) or (path.is_file() and fails):
            raise ZeroDivisionError("ours")
        return whole(file, path, seed, **more)  # type: ignore[arg-type]

    fails: list[bool] = []
    monkeypatch.setattr(grading, "check", failing)
    asked = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(), "en", tmp_path / "out")
    results = grading.grade(asked, handed, 1)
    assert [r["points"] for r in results.values()] == [0.0] * 4
    assert "cannot be read" in results["odd"]["refused"]
    assert "none of the files" in results["dir"]["refused"]
    assert results["good"]["files"][0]["problems"][0]["kind"] == "text"
    fails.append(True)
    failed = grading.grade(asked, [Submission("good", tmp_path / "worse.zip")], 1)["good"]
    assert "dualml itself failed" in failed["refused"]
    fails.clear()
    again = grading.grade(asked, [Submission("good", tmp_path / "worse.zip")], 1)["good"]
    assert again["refused"] is None


def test_what_is_refused_has_no_points_and_says_so_in_the_language(tmp_path: Path) -> None:
    bomb = packed(
        tmp_path / "b.zip",
        ("optim_torch.py", read_solution(TORCH).encode()),
        ("zeros", bytes(60 << 20)),
    )
    asked = grading.GradingRequest(LAB1, [TORCH], "s", rubrics.Rubric(), "zh", tmp_path / "out")
    result = grading.grade(asked, [bomb], 1)["b"]
    assert (result["points"], result["refused"]) == (0.0, "超过 52,428,800 字节")
    assert result["sources"] == {}


def test_folders_without_submissions(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError):
            find_submissions(path)
    (tmp_path / "a").mkdir()
    packed(tmp_path / "a.zip")
    with pytest.raises(UserError, match="two submissions of a"):
        find_submissions(tmp_path)


# --- rubrics -----------------------------------------------------------------------------------


def test_points_of_a_rubric(tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text(
        'lab = "lab1"\n[points]\nGD = 2\n"sgd.nesterov" = 5\noptim_ms = 0\n'
        "[partial]\nsign = 0.5\ntwice = 0.75\n[penalty]\nready_made = 4\n"
    )
    rubric = rubrics.load_rubric(path, LAB1)
    by_name = {r.name: r for r in TORCH.requirements}

    def earned(name: str, status: str, *mistakes: str) -> float:
        judgement = Judgement(by_name[name], status, mistakes=mistakes)
        return rubric.earned_points(TORCH, [judgement])[0][0]

    assert earned("gd.update", "met") == 2
    assert earned("sgd.nesterov", "met") == 5
    assert earned("sgd.plain", "met") == 1
    assert earned("gd.update", "not met", "sign") == 1
    assert earned("gd.update", "not met", "sign", "twice") == 0.5
    assert earned("gd.update", "not met", "sign", "nothing") == 0
    assert earned("gd.update", "not met") == 0
    judgements = [Judgement(by_name["gd.update"], "met")]
    checked = CheckResult(TORCH, path, [Problem("ready_made")], judgements, 0)
    assert rubrics.total_points(rubric, [checked]) == (0.0, 2.0)
    assert rubrics.total_points(rubrics.load_rubric(None, LAB1), [checked]) == (1.0, 1.0)


def test_a_mistake_that_costs_once() -> None:
    chosen = [r for r in TORCH.requirements if r.target in ("GD", "SGD")][:6]
    wrong = [Judgement(r, "not met", mistakes=("sign",)) for r in chosen]
    assert rubrics.Rubric().earned_points(TORCH, wrong) == [(0.0, "")] * len(wrong)
    first = [r.target not in [c.target for c in chosen[:n]] for n, r in enumerate(chosen)]
    assert rubrics.Rubric(once=True).earned_points(TORCH, wrong) == [
        (0.0, "") if new else (1.0, "once") for new in first
    ]
    both = [*wrong[:1], Judgement(chosen[1], "not met", mistakes=("sign", "twice"))]
    assert rubrics.Rubric(once=True).earned_points(TORCH, both) == [(0.0, "")] * 2
    kept = rubrics.Rubric(partial={"sign": 1.0}).earned_points(TORCH, wrong[:1])
    assert kept == [(1.0, "partial")]


def test_nothing_done_is_no_slip() -> None:
    chosen = [r for r in TORCH.requirements if r.target == "SGD"][:4]
    once = rubrics.Rubric(once=True)
    slip = [Judgement(r, "not met", mistakes=("sign",)) for r in chosen]
    spared = [(0.0, ""), (1.0, "once"), (1.0, "once"), (1.0, "once")]
    assert once.earned_points(TORCH, slip) == spared
    none = [(0.0, "")] * 4
    assert once.earned_points(
        TORCH, [Judgement(r, "not met", mistakes=("nothing",)) for r in chosen]
    ) == (none)
    for first in (
        Judgement(chosen[0], "unwritten", Trouble("unwritten")),
        Judgement(chosen[0], "not met", Trouble("TypeError"), mistakes=("sign",)),
        Judgement(chosen[0], "not met", mistakes=("nothing", "sign")),
        Judgement(chosen[0], "not judged"),
        Judgement(chosen[0], "not met"),
    ):
        assert once.earned_points(TORCH, [first, *slip[1:]]) == none
    error = Judgement(chosen[2], "not met", Trouble("TypeError"), mistakes=("sign",))
    assert once.earned_points(TORCH, [*slip[:2], error, slip[3]]) == [
        *spared[:2],
        (0.0, ""),
        spared[3],
    ]
    other = [r for r in TORCH.requirements if r.target == "Adam"][:2]
    apart = [Judgement(r, "not met", mistakes=("sign",)) for r in other]
    empty = [Judgement(r, "not met", mistakes=("nothing",)) for r in chosen]
    assert once.earned_points(TORCH, [*empty, *apart]) == [*none, (0.0, ""), (1.0, "once")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[points]\nGDD = 1\n", "did you mean 'GD'"),
        ("[points]\nGD = -1\n", "from 0"),
        ("[partial]\nsign = 1.5\n", "from 0 to 1"),
        ("[partial]\nsing = 1\n", "sign"),
        ("[penalty]\nsyntax = 1\n", "unknown 'syntax'"),
        ('lab = "lab2"\n', "lab2"),
        ("[pionts]\nGD = 1\n", "points"),
        ("[points]\nGD = 'x'\n", "points"),
        ("[points\n", "TOML"),
    ],
)
def test_rubrics_that_cannot_be(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=why):
        rubrics.load_rubric(path, LAB1)


# --- tables ------------------------------------------------------------------------------------

RESULT = {
    "student": "=cmd()", "refused": None, "points": 1.5, "most": 3.0,
    "files": [{"file": "optim_torch.py", "taken": 0.0, "problems": [], "requirements": [
        {"name": "gd.update", "title": "an update", "target": "GD", "ranks": 1, "status": "met",
         "points": 1.0, "most": 1.0,
         "spared": "", "call": "GD()", "trouble": None, "difference": None, "mistakes": []},
        {"name": "gd.rates", "title": "rates", "target": "GD", "ranks": 1, "status": "not met",
         "points": 0.5, "most": 2.0,
         "spared": "partial", "call": "GD(lr = 1)", "trouble": None,
         "difference": {"key": "1/w", "value": 1.0, "expected": 2.0, "index": [0], "rank": 0},
         "mistakes": [{"name": "sign", "symptom": "the loss grows"}]},
    ]}],
}  # fmt: skip


def test_what_autograders_read() -> None:
    words = Messages("en")
    scope = gradescope(RESULT, words)
    assert scope["score"] == 1.5
    assert [t["status"] for t in scope["tests"]] == ["passed", "failed"]
    assert sum(t["score"] for t in scope["tests"]) == scope["score"]
    said = scope["tests"][1]["output"]
    assert "the loss grows" in said
    assert "w[0] after update 1: yours 1, the rule gives 2" in said
    assert "Some of the points" in said
    assert scope["tests"][1]["name"] == "optim_torch.py GD: rates"
    learn = prairielearn(RESULT, words)
    assert learn["score"] == 0.5
    assert learn["gradable"] is True
    assert [t["max_points"] for t in learn["tests"]] == [1.0, 2.0]
    json.dumps([scope, learn], allow_nan=False)


def test_what_is_said_of_a_file_as_a_whole(tmp_path: Path) -> None:
    words = Messages("en")
    problem = Problem("syntax", "'(' was never closed", 3, "f(")
    seen = {**asdict(problem), "text_for_people": problem_text(problem, words)}
    files = [{**RESULT["files"][0], "problems": [seen], "taken": 1.0}]
    result = {**RESULT, "files": files}
    for said in (gradescope(result, words)["output"], prairielearn(result, words)["message"]):
        assert "optim_torch.py: This is not valid Python: '(' was never closed" in said
        assert "Points taken for the problems above: 1." in said
    write_csv({"a": result}, tmp_path / "g.csv", words)
    assert "never closed" in (tmp_path / "g.csv").read_text("utf-8-sig")
    refused = prairielearn({**result, "refused": "no zip"}, words)
    assert refused["gradable"] is False
    assert "no zip" in refused["format_errors"][0]


def test_a_table_that_spreadsheets_do_not_execute(tmp_path: Path) -> None:
    write_csv({"=cmd()": RESULT}, tmp_path / "g.csv", Messages("en"))
    text = (tmp_path / "g.csv").read_text("utf-8-sig")
    assert "'=cmd()" in text
    assert "optim_torch:gd.rates" in text
    assert safe_cell("李") == "李"


# --- pairs -------------------------------------------------------------------------------------


def test_a_passage_of_seventeen_tokens_is_never_missed() -> None:
    passage = "total = first * second + third - fourth / fifth ** sixth % (seventh)\n"
    for before in ("a = 1\n", "b = [1, 2, 3]\nc = b[0]\n", "if x:\n    y()\n"):
        for after in ("z = 0\n", "for i in range(3):\n    print(i)\n"):
            one = fingerprints(passage, names=True)
            two = fingerprints(before + passage + after, names=True)
            assert len(list(tokens(passage, names=True))) == K + W - 1
            assert one.keys() & two.keys()


def test_names_layout_and_comments_do_not_hide_a_copy() -> None:
    own = read_solution(TORCH)
    disguised = own.replace("group", "gruppe").replace("        # solution", "        # mine")
    disguised = disguised.replace("state", "zustand")
    assert overlap_share(fingerprints(own, False), fingerprints(disguised, False)) > 0.9
    assert overlap_share(fingerprints(own, True), fingerprints(disguised, True)) < 0.7


def test_what_everybody_was_given_counts_for_nothing() -> None:
    given = read_skeleton(TORCH, "lab1", "en")
    empty = {s: {TORCH.name: given} for s in "ab"}
    assert compare_files(empty, {TORCH.name: given}) == []
    copied = {s: {TORCH.name: read_solution(TORCH)} for s in "ab"}
    (pair,) = compare_files(copied, {TORCH.name: given})
    assert pair.names == 1.0
    assert select_suspicious([pair], 1) == [pair]
    lines = read_solution(TORCH).splitlines()
    assert all("super().__init__(params, defaults)" not in lines[n - 1] for n in pair.lines[0])


def test_a_copy_with_other_names_is_found_and_what_the_task_dictates_is_not() -> None:
    given = read_skeleton(TORCH, "lab1", "en")
    body = "            for p in group['params']:\n                p.sub_(group['lr'] * p.grad)\n"
    dictated = given.replace("raise NotImplementedError", "for group in self.groups:\n" + body, 1)
    renamed = read_solution(TORCH)
    for word in ("group", "state", "beta1", "beta2", "decay", "mu"):
        renamed = renamed.replace(word, f"{word}x")
    sources = {f"s{n}": dictated for n in range(6)} | {"a": read_solution(TORCH), "b": renamed}
    handed = {student: {TORCH.name: text} for student, text in sources.items()}
    (pair,) = select_suspicious(compare_files(handed, {TORCH.name: given}), 28)
    assert (pair.a, pair.b) == ("a", "b")
    assert pair.share > 0.9 > pair.names
    ring = {
        f"s{n}": {TORCH.name: read_solution(TORCH)} for n in range(6)
    }  # a copy is one for everybody
    assert len(select_suspicious(compare_files(ring, {TORCH.name: given}), 15)) == 15


def test_every_mistake_that_can_be_named_may_stand_in_a_rubric() -> None:
    for name in LABS:
        known = set(rubrics.known_mistakes(load_lab(name)))
        for file in load_lab(name).files:
            for r in file.requirements:
                said = {*r.flags, *(mistake for _, mistake in r.errors), r.otherwise} - {""}
                assert {flag.partition("#")[0] for flag in said} <= known


def test_files_that_are_no_python_have_no_pairs() -> None:
    broken = {s: {TORCH.name: "def f(:\n  '''"} for s in "ab"}
    assert compare_files(broken, {TORCH.name: ""}) == []
