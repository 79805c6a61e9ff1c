"""What is written once everybody is graded."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from pathlib import Path
from typing import Any

from dualml.course.grading.alike import pairs, remarkable
from dualml.course.grading.grade import Request
from dualml.course.grading.pages import write_overview, write_student
from dualml.course.grading.tables import write_autograders, write_csv
from dualml.course.workspace import skeleton_of
from dualml.words import Words


def finish(request: Request, results: Mapping[str, Mapping[str, Any]], words: Words) -> list[Path]:
    """The class's table and overview, each student's page and files; the first two, by path."""
    out, students = request.out, request.out / "students"
    for student, result in results.items():
        write_student(result, students / student / "index.html", words)
    write_autograders(results, students, words)
    table, overview = out / "grades.csv", out / "overview.html"
    write_csv(results, table, words)
    sources = {student: result["sources"] for student, result in results.items()}
    given = {f.name: skeleton_of(f, request.lab.name, "en") for f in request.files}
    handed = [sum(name in files for files in sources.values()) for name in given]
    alike = remarkable(pairs(sources, given), sum(comb(n, 2) for n in handed))
    write_overview(results, alike, overview, request.lab.name, words)
    return [table, overview]
