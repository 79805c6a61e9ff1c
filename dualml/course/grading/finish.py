"""Output that is written when all submissions are graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import comb
from pathlib import Path

from dualml.common.words import Messages
from dualml.course.grading.pages import write_overview, write_student
from dualml.course.grading.request import GradingRequest
from dualml.course.grading.results import SubmissionResult, reason_of
from dualml.course.grading.similarity import compare_files, select_suspicious
from dualml.course.grading.tables import write_autograders, write_csv
from dualml.course.workspace import read_skeleton


def finish(
    request: GradingRequest, results: Mapping[str, SubmissionResult], words: Messages
) -> tuple[list[Path], dict[str, str]]:
    """Write the class's table and overview, each student's page and files.

    Returns:
        the paths of ``grades.csv`` and ``overview.html``, if they were written; and (file name of
        one of these, or student) → reason, for what could not be written. The next call writes all
        of them again.
    """
    out, failures = request.out, dict[str, str]()

    def attempt(name: str, write: Callable[[], None]) -> None:
        """Write one output, and record the reason if it fails."""
        try:
            write()
        except Exception as error:  # the others' pages do not depend on it
            failures[name] = reason_of(error, words)

    table, overview = out / "grades.csv", out / "overview.html"
    attempt(table.name, lambda: write_csv(results, table, words))
    for student, result in results.items():
        folder = out / "students" / result["folder"]
        attempt(student, partial(write_files, result, folder, words))
    attempt(overview.name, lambda: write_class(request, results, overview, words))
    return [path for path in (table, overview) if path.name not in failures], failures


def write_files(result: SubmissionResult, folder: Path, words: Messages) -> None:
    """Write one student's page and the files for autograders."""
    folder.mkdir(parents=True, exist_ok=True)
    write_student(result, folder / "index.html", words)
    write_autograders(result, folder, words)


def write_class(
    request: GradingRequest, results: Mapping[str, SubmissionResult], path: Path, words: Messages
) -> None:
    """Write the overview of the class, with the similar pairs."""
    sources = {student: result["sources"] for student, result in results.items()}
    given = {f.name: read_skeleton(f, request.lab.name, "en") for f in request.files}
    handed = [sum(name in files for files in sources.values()) for name in given]
    alike = select_suspicious(compare_files(sources, given), sum(comb(n, 2) for n in handed))
    write_overview(results, alike, path, request.lab.name, words)
