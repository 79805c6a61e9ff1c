"""Results of submissions as in `result.json`: judged, refused, or not graded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.course.check import CheckResult
from dualml.course.faults import kind_of_fault
from dualml.course.grading.request import FORMAT, GradingRequest
from dualml.course.grading.rubric import Rubric, total_points
from dualml.course.grading.submissions import Submission
from dualml.course.judge import Judgement
from dualml.course.rendering import result_as_json
from dualml.course.source import Problem, read_legible

#: Depth of the hints on the pages: everything.
HINTS = 3


class SubmissionResult(TypedDict, total=False):
    """Content of a student's ``result.json``.

    Attributes:
        points, most: earned and possible points; points is None if it was not graded.
        refused, not_graded: the reason, None if it does not apply.
        files: each file's check as `result_as_json`, with its points.
        sources: file → its text.
    """

    format: int
    student: str
    folder: str
    lab: str
    isolation: str
    key: str
    refused: str | None
    not_graded: str | None
    points: float | None
    most: float
    files: list[JsonObject]
    sources: dict[str, str]


def blank_result(request: GradingRequest, submission: Submission) -> SubmissionResult:
    """Make the result of a submission that has not been judged: without files, ``points`` and
    ``most``, neither refused nor marked as not graded."""
    return {
        "format": FORMAT,
        "student": submission.student,
        "folder": submission.results_folder,
        "lab": request.lab.name,
        "isolation": request.isolation.kind,
        "key": "",
        "refused": None,
        "not_graded": None,
        "files": [],
        "sources": {},
    }


def refused_result(
    request: GradingRequest, submission: Submission, why: str, words: Messages
) -> SubmissionResult:
    """Make the result of a refused submission, with the reason ``why``: all files count as absent,
    and it has 0 points."""
    checked = [
        CheckResult(
            file,
            Path(file.name),
            [Problem("absent", file.name)],
            [Judgement(requirement, "not judged") for requirement in file.requirements],
            0,
        )
        for file in request.files
    ]
    return add_files(request, submission, checked, words) | {"refused": why}


def add_files(
    request: GradingRequest, submission: Submission, checked: Sequence[CheckResult], words: Messages
) -> SubmissionResult:
    """Make the result of a submission from the checks of its files, with their points."""
    points, most = total_points(request.rubric, checked)
    return blank_result(request, submission) | {
        "points": points,
        "most": most,
        "files": [file_with_points(one, request.rubric, words) for one in checked],
        "sources": {one.file.name: text for one in checked if (text := source_of(one))},
    }


def source_of(checked: CheckResult) -> str:
    """Return the student's source; empty for a file that is absent, ambiguous or too long."""
    ended = {problem.kind for problem in checked.problems} & {"absent", "twice", "long"}
    return "" if ended or not checked.path.is_file() else read_legible(checked.path)


def failed_result(
    request: GradingRequest, submission: Submission, error: Exception, words: Messages
) -> SubmissionResult:
    """Make the result of a submission that failed by an exception: a fault of the machine gives no
    grade, and any other error, of dualml itself, a refusal with 0 points."""
    if kind_of_fault(error):
        return not_graded_result(request, submission, reason_of(error, words))
    why = words("grade.refusal.failed", what=f"{type(error).__name__}: {error}")
    return refused_result(request, submission, why, words)


def reason_of(error: Exception, words: Messages) -> str:
    """Return as text which resource the machine lacks, or the error's own text if it is no such
    fault."""
    kind = kind_of_fault(error)
    said = words.get(f"grade.machine.{kind}", "")
    return said or (error.strerror if isinstance(error, OSError) else "") or str(error)


def not_graded_result(
    request: GradingRequest, submission: Submission, why: str
) -> SubmissionResult:
    """Make the result of a submission that the machine could not judge."""
    worths = (
        request.rubric.requirement_points(file, Judgement(requirement, "not judged"))
        for file in request.files
        for requirement in file.requirements
    )
    more: SubmissionResult = {"not_graded": why, "points": None, "most": sum(worths)}
    return blank_result(request, submission) | more


def file_with_points(checked: CheckResult, rubric: Rubric, words: Messages) -> dict[str, Any]:
    """Return a file's check as `result_as_json`, with ``points``, ``most`` and ``spared`` (why
    points are given all the same) of each requirement, and ``taken``, the points taken off."""
    shown = result_as_json(checked, HINTS, words)
    earned = rubric.earned_points(checked.file, checked.judgements)
    for entry, judgement, (points, why) in zip(
        shown["requirements"], checked.judgements, earned, strict=True
    ):
        entry["points"], entry["most"] = points, rubric.requirement_points(checked.file, judgement)
        entry["spared"] = why
    shown["taken"] = rubric.penalty_points(checked)
    return shown


def iter_entries(result: SubmissionResult) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file, requirement entry) of a result."""
    for file in result["files"]:
        for entry in file["requirements"]:
            yield file["file"], entry
