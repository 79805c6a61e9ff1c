"""Grades submissions: each by itself, several at a time, and not twice."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dualml.course.check import Checked, check
from dualml.course.exercise import File, Lab
from dualml.course.grading.rubric import Rubric, total
from dualml.course.grading.submissions import Handed, Refused, Submission, unpack
from dualml.course.shown import described
from dualml.course.source import Problem, legible
from dualml.files import read_json, write_json
from dualml.seeds import seed_for
from dualml.version import __version__
from dualml.words import Words

#: Of what a result file holds.
FORMAT = 2
RESULT = "result.json"
#: How deep the pages explain: everything.
HINTS = 3


@dataclass(frozen=True)
class Request:
    """What is graded, and how.

    Attributes:
        files: the exercises that everybody was to hand in.
        secret: of which everything that is drawn follows; nothing of it is written anywhere.
        stop: set to end what is at work.
    """

    lab: Lab
    files: Sequence[File]
    secret: str
    rubric: Rubric
    lang: str
    out: Path
    stop: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def mark(self) -> str:
        """Changes when another grade could come out. It takes a while to make: students may see
        it, and a short secret could be found by trying."""
        slow = hashlib.pbkdf2_hmac("sha256", self.secret.encode(), b"dualml grade", 600_000)
        parts = [slow.hex(), self.lab.name, *(file.name for file in self.files), self.lang,
                 self.rubric.model_dump_json(), __version__, str(FORMAT)]  # fmt: skip
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def grade(
    request: Request,
    found: Sequence[Submission],
    jobs: int,
    done: Callable[[str, bool], None] = lambda student, again: None,
) -> dict[str, dict[str, Any]]:
    """The result of every student.

    Args:
        done: called with each student that is finished, and whether the result was there already.
    """
    results: dict[str, dict[str, Any]] = {}
    todo = []
    for submission in found:
        old = finished(request, submission)
        if old is None:
            todo.append(submission)
        else:
            results[submission.student] = old
            done(submission.student, True)
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(one, request, submission): submission for submission in todo}
        try:
            for future in as_completed(running):
                submission = running[future]
                results[submission.student] = future.result()
                done(submission.student, False)
        except BaseException:
            request.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return {submission.student: results[submission.student] for submission in found}


def folder_of(request: Request, submission: Submission) -> Path:
    return request.out / "students" / submission.student


def key_of(request: Request, submission: Submission) -> str:
    return hashlib.sha256(f"{request.mark}{submission.digest()}".encode()).hexdigest()


def finished(request: Request, submission: Submission) -> dict[str, Any] | None:
    """The result that is there already for the same submission and the same request."""
    path = folder_of(request, submission) / RESULT
    if not path.is_file():
        return None
    try:
        result: dict[str, Any] = read_json(path)
    except ValueError:
        return None
    return result if result.get("key") == key_of(request, submission) else None


def one(request: Request, submission: Submission) -> dict[str, Any]:
    """Judge one submission and write its result."""
    words = Words(request.lang)
    result: dict[str, Any] = {
        "format": FORMAT,
        "student": submission.student,
        "lab": request.lab.name,
        "key": key_of(request, submission),
        "refused": None,
        "files": [],
        "sources": {},
    }
    handed = nothing = Handed({}, {})
    with tempfile.TemporaryDirectory(prefix="dualml-") as temporary:
        home = Path(temporary)
        try:
            handed = unpack(submission, home, [file.name for file in request.files])
        except Refused as error:
            result["refused"] = words(f"grade.refusal.{error.kind}", what=error.what)
        try:
            checked = [one_file(request, file, handed, home) for file in request.files]
        except Exception as error:  # the others' grades do not depend on it
            result["refused"] = words("grade.refusal.failed", what=repr(error))
            result["key"] = ""  # it is tried again
            checked = [one_file(request, file, nothing, home) for file in request.files]
        if request.stop.is_set():
            raise KeyboardInterrupt
        for judged in checked:
            result["files"].append(with_points(judged, request.rubric, words))
            if judged.path.is_file() and judged.path.stat().st_size < 1 << 18:
                result["sources"][judged.file.name] = legible(judged.path)
    result["points"], result["most"] = total(request.rubric, checked)
    folder = folder_of(request, submission)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RESULT, result)
    stored: dict[str, Any] = json.loads((folder / RESULT).read_text("utf-8"))
    return stored


def one_file(request: Request, file: File, handed: Handed, home: Path) -> Checked:
    """What is said of one of the files that were handed in, or were not."""
    path = handed.paths.get(file.name, home / ".absent" / file.name)
    seed = seed_for(0, "grade", request.secret, request.lab.name, file.name)
    checked = check(file, path, seed, over=request.stop.is_set)
    if file.name in handed.twice:
        problem = Problem("twice", handed.twice[file.name])
        checked = replace(checked, problems=[problem])
    return checked


def with_points(checked: Checked, rubric: Rubric, words: Words) -> dict[str, Any]:
    """A file as `described`, with what it is worth."""
    shown = described(checked, HINTS, words)
    earned = rubric.earned(checked.file, checked.judgements)
    for entry, judgement, (points, why) in zip(
        shown["requirements"], checked.judgements, earned, strict=True
    ):
        entry["points"], entry["most"] = points, rubric.worth(checked.file, judgement)
        entry["spared"] = why
    shown["taken"] = rubric.taken(checked)
    return shown


def entries(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file, requirement) of a result."""
    for file in result["files"]:
        for entry in file["requirements"]:
            yield file["file"], entry
