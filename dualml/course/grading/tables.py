"""Results for other programs: a table of the class, and what autograders read."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.course.grading.grade import entries
from dualml.files import write_bytes, write_json
from dualml.words import Words

Results = Mapping[str, Mapping[str, Any]]
#: A cell that begins with one of these is taken for a formula by spreadsheets.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(results: Results, path: Path) -> None:
    """One row for each student; UTF-8 with a mark, so that spreadsheets read Chinese names."""
    names = list(dict.fromkeys(
        f"{file}:{entry['name']}" for r in results.values() for file, entry in entries(dict(r))
    ))  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["student", "points", "of", "refused", *names])
    for student, result in results.items():
        points = {f"{file}:{e['name']}": e["points"] for file, e in entries(dict(result))}
        refused = result["refused"] or ""
        row = [student, result["points"], result["most"], refused]
        writer.writerow([safe(v) for v in (*row, *(points.get(n, "") for n in names))])
    write_bytes(path, b"\xef\xbb\xbf" + text.getvalue().encode())


def safe(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def explained(entry: Mapping[str, Any], words: Words) -> str:
    """What a student reads of one requirement."""
    lines = [entry["call"] or ""]
    if entry["trouble"]:
        lines.append(f"{entry['trouble']['kind']}: {entry['trouble']['message']}".strip(": "))
    if difference := entry["difference"]:
        lines.append(words("course.numbers", where=difference["key"], value=difference["value"],
                           expected=difference["expected"]))  # fmt: skip
    for mistake in entry["mistakes"]:
        lines += [text for depth, text in mistake.items() if depth != "name"]
    return "\n".join(line for line in lines if line)


def gradescope(result: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """``results.json`` of a Gradescope autograder: points of each test, status, output."""
    tests = [
        {
            "name": f"{file} {entry['title']}",
            "score": entry["points"],
            "max_score": entry["most"],
            "status": "passed" if entry["status"] == "met" else "failed",
            "output": explained(entry, words),
            "visibility": "visible",
        }
        for file, entry in entries(dict(result))
    ]
    return {
        "score": result["points"],
        "output": result["refused"] or "",
        "visibility": "visible",
        "tests": tests,
    }


def prairielearn(result: Mapping[str, Any], words: Words) -> dict[str, Any]:
    """``results.json`` of PrairieLearn's external graders: a share from 0 to 1, and the tests."""
    tests = [
        {
            "name": f"{file} {entry['title']}",
            "description": entry["name"],
            "points": entry["points"],
            "max_points": entry["most"],
            "output": explained(entry, words),
        }
        for file, entry in entries(dict(result))
    ]
    most = result["most"]
    return {
        "gradable": result["refused"] is None,
        "score": result["points"] / most if most else 0.0,
        "message": result["refused"] or "",
        "tests": tests,
    }


def write_autograders(results: Results, folder: Path, words: Words) -> None:
    """Beside each student's page."""
    for student, result in results.items():
        for name, made in (("gradescope", gradescope), ("prairielearn", prairielearn)):
            place = folder / student / name
            place.mkdir(parents=True, exist_ok=True)
            write_json(place / "results.json", made(result, words))
