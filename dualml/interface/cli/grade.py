"""``dualml grade``: grade the submissions of a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.errors import UserError, did_you_mean
from dualml.common.words import Messages
from dualml.interface.cli import complete
from dualml.interface.cli.course import COURSE_BACKEND, check_installed, report_machine_faults
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import OutputOptions
from dualml.interface.cli.output import complain, print_json

if TYPE_CHECKING:
    from dualml.course.exercise import ExerciseFile
    from dualml.course.grading.request import GradingRequest
    from dualml.course.grading.results import SubmissionResult
    from dualml.course.grading.submissions import Submission
    from dualml.course.isolation.detect import Isolation

#: Exit code if some submissions could not be graded.
NOT_GRADED = 1


@dataclass(frozen=True)
class SecretOptions:
    """The secret from which the inputs are drawn."""

    secret: Annotated[str | None, typer.Option("--secret")] = None
    secret_file: Annotated[Path | None, typer.Option("--secret-file")] = None


@dataclass(frozen=True)
class AssignmentOptions:
    """The exercises that the class was given, and their points."""

    lab: Annotated[str, typer.Option(autocompletion=complete.exercises)] = "lab1"
    backend: Annotated[str, COURSE_BACKEND] = "both"
    rubric: Path | None = None


@with_option_groups
def grade(
    folder: Annotated[Path, typer.Argument()],
    *,
    seeding: SecretOptions,
    out: Path = Path("grades"),
    assignment: AssignmentOptions,
    jobs: Annotated[int | None, typer.Option(min=1, max=64)] = None,
    unisolated: Annotated[bool, typer.Option("--unisolated")] = False,
    output: OutputOptions,
) -> None:
    """Grade the submissions of a class with secret random inputs: points, pages, an overview."""
    from dualml.common.machine import usable_cores
    from dualml.course.grading import grade as grading
    from dualml.course.grading import rubric as rubrics
    from dualml.course.grading.finish import finish
    from dualml.course.grading.secret import read_secret
    from dualml.course.grading.submissions import find_submissions
    from dualml.course.labs import load_lab as lab_of
    from dualml.course.workspace import BACKENDS
    from dualml.course.workspace import select_files as files_of

    lang, lab, backend = output.lang, assignment.lab, assignment.backend
    words, exercises, warnings = Messages(lang), lab_of(lab), list[str]()
    if backend not in BACKENDS:
        raise UserError(f"unknown --backend {backend!r}{did_you_mean(backend, BACKENDS)}")
    text = read_secret(
        seeding.secret,
        seeding.secret_file,
        lambda: str(typer.prompt(words("grade.no_secret"), hide_input=True, err=True)),
        lambda kind, path: warnings.append(words(f"grade.secret_{kind}", path=path)),
    )
    files = files_of(exercises, BACKENDS[backend])
    check_installed(files)
    around = isolation_for(files, unisolated, words)
    points = rubrics.load_rubric(assignment.rubric, exercises)
    request = grading.GradingRequest(exercises, files, text, points, lang, out, around)
    check_folders(folder, out)
    found, others = find_submissions(folder, out)
    for warning in warnings:
        complain(warning)
    out.mkdir(parents=True, exist_ok=True)
    results = grade_with_progress(request, found, jobs or usable_cores(), words, quiet=output.json)
    written, unwritten = finish(request, results, words)
    if output.json:
        students = {
            s: {k: r[k] for k in ("points", "most", "refused", "not_graded")}
            for s, r in results.items()
        }
        answer = {
            "lab": lab,
            "out": str(out),
            "isolation": around.kind,
            "students": students,
            "passed_over": others,
        }
        print_json(answer, "grade")
    else:
        show_class(results, others, written, words)
    left = sum(result["points"] is None for result in results.values())
    if left:
        complain(words("grade.left", n=left, of=len(results)))
    if unwritten:
        why = "; ".join(dict.fromkeys(unwritten.values()))
        complain(words("grade.unwritten", names=list(unwritten), why=why))
    if left or unwritten:
        raise typer.Exit(NOT_GRADED)


def isolation_for(files: Sequence[ExerciseFile], unisolated: bool, words: Messages) -> Isolation:
    """Return the isolation in which the code of a class runs; one of kind ``none`` if
    ``unisolated``.

    Raises:
        UserError: without ``unisolated``, the machine offers no isolation, or it is switched off by
            an environment variable.
    """
    from dualml.course.isolation.client import find_isolation
    from dualml.course.isolation.detect import SWITCH, Isolation

    if unisolated:
        return Isolation("none", "as asked for")
    for file in files:
        with report_machine_faults(f"{file.name} is not judged"):
            around = find_isolation(file.backend)
        if around.why == f"{SWITCH}=none":
            raise UserError(
                f"{around.why} switches the isolation off: unset it, or add "
                "--unisolated, which every result then says"
            )
        if not around.walls:
            raise UserError(words("grade.no_walls", why=around.why))
    return around


def check_folders(folder: Path, out: Path) -> None:
    """Raise `UserError` if results would be written into a submission, or mistaken for submissions:
    where ``out`` is the submissions' folder or inside a submission, or ``folder`` is among the
    results in ``out``."""
    here, there = folder.resolve(), out.resolve()
    if here == there:
        raise UserError(f"--out must be another folder than that of the submissions: {out}")
    if here in there.parents and here != there.parent:
        raise UserError(f"--out must not lie inside of a submission: {out}")
    if there / "students" in (here, *here.parents):
        raise UserError(f"{folder} is where --out {out} has its results; name another folder")


def grade_with_progress(
    request: GradingRequest, found: Sequence[Submission], jobs: int, words: Messages, *, quiet: bool
) -> dict[str, SubmissionResult]:
    """Grade the submissions ``found``, at most ``jobs`` at a time, with a progress display unless
    ``quiet``; return student → result."""
    from dualml.course.grading.grade import grade as grade_class
    from dualml.runner.session.progress import show_activity

    said, over = words("grade.grading"), [0]
    with show_activity(said, quiet=quiet) as update:

        def count_done(student: str, again: bool) -> None:
            """Count a graded student, and update the progress bar."""
            over[0] += 1
            update(f"{said} {over[0]}/{len(found)} {student}")

        update(f"{said} 0/{len(found)}")
        try:
            return grade_class(request, found, jobs, count_done)
        except KeyboardInterrupt:
            complain(words("grade.interrupted", n=over[0], of=len(found)))
            raise


def show_class(
    results: Mapping[str, SubmissionResult],
    others: Sequence[str],
    written: Sequence[Path],
    words: Messages,
) -> None:
    """Print who was not graded and why, who was passed over (``others``), the number of graded
    students, and the files written."""
    from dualml.course.grading.tables import state_of

    for student, result in results.items():
        if said := state_of(result, words):
            typer.echo(f"{student}: {said}")
    if others:
        typer.echo(words("grade.passed_over", names=others))
    graded = sum(result["points"] is not None for result in results.values())
    typer.echo(words("grade.graded", n=graded))
    for path in written:
        typer.echo(str(path))
