"""Results of submissions as in `result.json`: judged, refused, or not graded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualml.course.check import Checked
from dualml.course.faults import kind_of_fault
from dualml.course.grading.request import FORMAT, Request
from dualml.course.grading.rubric import Rubric, total
from dualml.course.grading.submissions import Submission
from dualml.course.judge import Judgement
from dualml.course.shown import described
from dualml.course.source import Problem, legible
from dualml.words import Words

#: Depth of the hints on the pages: everything.
HINTS = 3


def blank(request: Request, submission: Submission) -> dict[str, Any]:
    """Make an empty result."""
    return {
        "format": FORMAT,
        "student": submission.student,
        "folder": submission.results,
        "lab": request.lab.name,
        "isolation": request.isolation.kind,
        "key": "",
        "refused": None,
        "not_graded": None,
        "files": [],
        "sources": {},
    }


def unjudged(request: Request, submission: Submission, why: str, words: Words) -> dict[str, Any]:
    """Make the result of a refused submission, with no points and the reason."""
    checked = [
        Checked(file, Path(file.name), [Problem("absent", file.name)],
                [Judgement(requirement, "not judged") for requirement in file.requirements], 0)
        for file in request.files
    ]  # fmt: skip
    return with_files(request, submission, checked, words) | {"refused": why}


def with_files(
    request: Request, submission: Submission, checked: Sequence[Checked], words: Words
) -> dict[str, Any]:
    """Add the checks of the files and their points to a result."""
    points, most = total(request.rubric, checked)
    return blank(request, submission) | {
        "points": points,
        "most": most,
        "files": [with_points(one, request.rubric, words) for one in checked],
        "sources": {one.file.name: text for one in checked if (text := source_of(one))},
    }


def source_of(checked: Checked) -> str:
    """Return the student's source; empty for a file that is too long."""
    ended = {problem.kind for problem in checked.problems} & {"absent", "twice", "long"}
    return "" if ended or not checked.path.is_file() else legible(checked.path)


def failed(
    request: Request, submission: Submission, error: Exception, words: Words
) -> dict[str, Any]:
    """Make the result of a submission that failed by a fault of the machine, which gives no grade,
    or of dualml itself. The next call tries again."""
    if kind_of_fault(error):
        return not_graded(request, submission, reason_of(error, words))
    why = words("grade.refusal.failed", what=f"{type(error).__name__}: {error}")
    return unjudged(request, submission, why, words)


def reason_of(error: Exception, words: Words) -> str:
    """Return which resource the machine lacks, or what else is wrong with it."""
    kind = kind_of_fault(error)
    said = words.either(f"grade.machine.{kind}", "")
    return said or (error.strerror if isinstance(error, OSError) else "") or str(error)


def not_graded(request: Request, submission: Submission, why: str) -> dict[str, Any]:
    """Make the result of a submission that the machine could not judge."""
    worths = (
        request.rubric.worth(file, Judgement(requirement, "not judged"))
        for file in request.files
        for requirement in file.requirements
    )
    more = {"not_graded": why, "points": None, "most": sum(worths)}
    return blank(request, submission) | more


def with_points(checked: Checked, rubric: Rubric, words: Words) -> dict[str, Any]:
    """Return a file's check as `result_as_json`, with its points."""
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
    """Yield (file, requirement entry) of a result."""
    for file in result["files"]:
        for entry in file["requirements"]:
            yield file["file"], entry
