"""Results for other programs: a table of the class, and files for autograders."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.common.files import write_json, write_text
from dualml.common.words import Messages
from dualml.course.exercise import Difference, Trouble
from dualml.course.grading.results import SubmissionResult, iter_entries
from dualml.course.relation_text import unknown_key
from dualml.course.rendering import inputs_text, numbers_text, trouble_text
from dualml.course.search_work import MAX_COMBINATIONS
from dualml.parity.hypothesis import DEPTHS

Results = Mapping[str, SubmissionResult]
#: Characters at the beginning of a cell that spreadsheets take for a formula.
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
#: Largest number of characters of a cell; spreadsheets allow 32,767.
CELL = 30_000


def write_csv(results: Results, path: Path, words: Messages) -> None:
    """Write a header and one row per student (points, possible points, points taken off, notes,
    points of each requirement), in UTF-8 with a byte-order mark, so that spreadsheets read Chinese
    names."""
    names = list(
        dict.fromkeys(
            column_name(file, entry) for r in results.values() for file, entry in iter_entries(r)
        )
    )
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["student", "points", "of", "taken", "note", *names])
    for student, result in results.items():
        points = {column_name(file, e): e["points"] for file, e in iter_entries(result)}
        taken = sum(file["taken"] for file in result["files"])
        note = "; ".join(notes(result, words))
        points_of = "" if result["points"] is None else result["points"]
        row = [student, points_of, result["most"], taken, note]
        writer.writerow([safe_cell(v) for v in (*row, *(points.get(n, "") for n in names))])
    write_text(path, "\ufeff" + text.getvalue())


def column_name(file: str, entry: Mapping[str, Any]) -> str:
    """Return a requirement's name as rubrics have it: the file without ``.py``, a colon and the
    ``name`` of ``entry``, as ``optim_torch:adam.update``."""
    return f"{file.removesuffix('.py')}:{entry['name']}"


def safe_cell(value: Any) -> Any:
    """Return a value for a cell: a text that a spreadsheet would take for a formula gets an
    apostrophe in front, and a long one is truncated; other values stay."""
    if not isinstance(value, str):
        return value
    return f"{chr(39) if value.lstrip().startswith(FORMULA) else ''}{value[:CELL]}"


def explanation_text(entry: Mapping[str, Any], words: Messages) -> str:
    """Return the explanation of one requirement for the student, one line per fact; empty if there
    is nothing to explain."""
    lines = [entry["call"] or ""]
    if entry["trouble"]:
        lines.append(trouble_of(entry, words))
    if entry["difference"]:
        lines += [numbers_of(entry, words), *findings_of(entry, words)]
    for mistake in entry["mistakes"]:
        lines += [f"{words(f'course.depth.{d}')} {mistake[d]}" for d in DEPTHS if d in mistake]
    lines.append(partial_credit_text(entry, words))
    return "\n".join(line for line in lines if line)


def numbers_of(entry: Mapping[str, Any], words: Messages) -> str:
    """Return the description of the number that differs in ``entry``, a requirement of
    `result_as_json`."""
    return numbers_text(Difference(**entry["difference"]), entry["ranks"], words)


def findings_of(entry: Mapping[str, Any], words: Messages) -> list[str]:
    """Return from which numbers the one that differs is computed; if no typical mistake is known,
    also what can be seen of it, and that none is known."""
    inputs = entry.get("inputs") or {}
    found = [inputs_text(inputs, words)] if inputs else []
    if not entry["mistakes"]:
        if relations := entry.get("relations"):
            found.append(f"{words('course.observed')} {words.join_sentences(relations)}")
        found.append(words(unknown_key(entry["difference"], bool(inputs))))
        if entry.get("bounded"):
            found.append(words("course.bounded", n=MAX_COMBINATIONS))
    return found


def unnamed_key(entry: Mapping[str, Any]) -> str:
    """Return a key that is equal for unnamed mistakes of a class or function that look alike; empty
    if a mistake is named."""
    if entry["mistakes"]:
        return ""
    return f"{entry['target']} unknown {(entry.get('relations') or [''])[0]}"


def trouble_of(entry: Mapping[str, Any], words: Messages) -> str:
    """Return the description of the error of ``entry``, a requirement of `result_as_json`."""
    return trouble_text(Trouble(**entry["trouble"]), entry["target"], entry["ranks"], words)


def partial_credit_text(entry: Mapping[str, Any], words: Messages) -> str:
    """Return why an unmet requirement earns points; empty if it earns none."""
    return words(f"grade.{entry['spared']}") if entry["spared"] else ""


def state_of(result: SubmissionResult, words: Messages) -> str:
    """Return why a submission was refused or not graded; empty if it was judged."""
    if result.get("not_graded"):
        return words("grade.not_graded", why=result["not_graded"])
    return words("grade.refused", why=result["refused"]) if result["refused"] else ""


def notes(result: SubmissionResult, words: Messages) -> list[str]:
    """Return the notes about a submission and about each of its files."""
    texts = [said] if (said := state_of(result, words)) else []
    texts += [words("grade.unisolated")] if result.get("isolation") == "none" else []
    for file in result["files"]:
        for problem in file["problems"]:
            if not (result["refused"] and problem["kind"] == "absent"):
                texts.append(f"{file['file']}: {problem['text_for_people']}")
        if file["taken"]:
            texts.append(f"{file['file']}: {words('grade.taken', points=file['taken'])}")
    return texts


def name_of_test(file: str, entry: Mapping[str, Any]) -> str:
    """Return the name of a requirement's test for an autograder: file, class or function, and
    title."""
    return f"{file} {entry['target']}: {entry['title']}"


def gradescope(result: SubmissionResult, words: Messages) -> dict[str, Any]:
    """Return ``results.json`` of a Gradescope autograder: points, status and output of each
    requirement; without a ``score`` if the submission was not graded."""
    tests = [
        {
            "name": name_of_test(file, entry),
            "score": entry["points"],
            "max_score": entry["most"],
            "status": "passed" if entry["status"] == "met" else "failed",
            "output": explanation_text(entry, words),
            "visibility": "visible",
        }
        for file, entry in iter_entries(result)
    ]
    return {
        # Without a score Gradescope reports a failed autograder instead of a grade.
        **({} if result["points"] is None else {"score": result["points"]}),
        "output": "\n".join(notes(result, words)),
        "visibility": "visible",
        "tests": tests,
    }


def prairielearn(result: SubmissionResult, words: Messages) -> dict[str, Any]:
    """Return ``results.json`` of PrairieLearn's external graders: a score from 0 to 1 and each
    requirement; without a score if not graded, and not ``gradable`` if not graded or refused."""
    tests = [
        {
            "name": name_of_test(file, entry),
            "description": entry["name"],
            "points": entry["points"],
            "max_points": entry["most"],
            "output": explanation_text(entry, words),
        }
        for file, entry in iter_entries(result)
    ]
    most, texts, points = result["most"], notes(result, words), result["points"]
    readable = result["refused"] is None and points is not None
    return {
        "gradable": readable,
        **({} if points is None else {"score": points / most if most else 0.0}),
        "message": "\n".join(texts),
        **({} if readable else {"format_errors": texts}),
        "tests": tests,
    }


def write_autograders(result: SubmissionResult, folder: Path, words: Messages) -> None:
    """Write ``gradescope/results.json`` and ``prairielearn/results.json`` into a student's folder;
    their folders are made."""
    for name, made in (("gradescope", gradescope), ("prairielearn", prairielearn)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        write_json(folder / name / "results.json", made(result, words))
