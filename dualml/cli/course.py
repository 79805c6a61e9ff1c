"""``dualml new``, ``dualml check``, ``dualml grade``: students' workspaces."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.cli import complete
from dualml.cli.options import LANG, AsJson
from dualml.cli.output import complain, print_json
from dualml.errors import UserError, nearest
from dualml.words import Words

if TYPE_CHECKING:
    from dualml.course.check import Checked
    from dualml.course.exercise import File, Requirement
    from dualml.course.grading.request import Request
    from dualml.course.grading.submissions import Submission
    from dualml.course.workspace import Workspace

MET, NOT_GRADED, NOT_MET = 0, 1, 3
COURSE_BACKEND = typer.Option("--backend", "-b", autocompletion=complete.backends)
Wanted = list[tuple["File", Callable[["Requirement"], bool]]]


def new(
    lab: Annotated[str, typer.Argument(autocompletion=complete.exercises)],
    folder: Annotated[Path, typer.Argument()],
    backend: Annotated[str, COURSE_BACKEND] = "both",
    notebook: Annotated[bool, typer.Option("--notebook")] = False,
    json: AsJson = False,
    lang: Annotated[str, LANG] = "en",
) -> None:
    """Make a workspace with the exercises of a lab."""
    from dualml.course.workspace import create

    written = [str(path) for path in create(lab, folder, backend, lang, notebook)]
    if json:
        print_json({"folder": str(folder), "files": written}, "files")
        return
    typer.echo("\n".join(written))
    typer.echo(Words(lang)("course.made", folder=folder))


def check(
    what: Annotated[list[str] | None, typer.Argument()] = None,
    watch: Annotated[bool, typer.Option("--watch")] = False,
    hints: Annotated[int, typer.Option(min=0, max=3)] = 1,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    json: AsJson = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Judge what a student has written; exit 3 if a requirement is not met."""
    from dualml.course.workspace import open_workspace

    folders = [Path(w) for w in what or () if Path(w).is_dir()]
    if len(folders) > 1:
        raise UserError(f"name one workspace; received {' and '.join(map(str, folders))}")
    workspace = open_workspace(folders[0] if folders else Path())
    names = [w for w in what or () if not Path(w).is_dir()]
    words = Words(lang or workspace.settings.lang)
    wanted = chosen(workspace, names)
    if watch:
        watching(workspace, wanted, hints, words)
        raise typer.Exit(MET)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    checked = list(judged(workspace, wanted, drawn, words, quiet=json))
    if json:
        print_json(as_json(workspace, checked, drawn, hints, words), "check")
    else:
        show(checked, drawn, hints, words)
    raise typer.Exit(MET if all(c.met for c in checked) else NOT_MET)


def chosen(workspace: Workspace, names: Sequence[str]) -> Wanted:
    """The files to judge, and which of their requirements: all, or those that are named by a class,
    a function or their own name, of all files or of those that are named by file or task.

    Raises:
        UserError: there is none of that name.
    """
    from dualml.course.workspace import stem

    if not names:
        return [(file, lambda requirement: True) for file in workspace.files]
    own = {f.name: {f.name, f.task, stem(f), f.backend} - {""} for f in workspace.files}
    inside = {n for f in workspace.files for r in f.requirements for n in (r.target, r.name)}
    of_files = set[str]().union(*own.values())
    for name in names:
        if name not in inside | of_files:
            raise UserError(f"nothing here is called {name!r}{nearest(name, inside | of_files)}")
    asked = set(names)
    parts = asked - of_files
    files = [f for f in workspace.files if parts == asked or asked & own[f.name]]

    def test(requirement: Requirement) -> bool:
        return not parts or requirement.target in parts or requirement.name in parts

    there = {n for f in files for r in f.requirements for n in (r.target, r.name)}
    if missing := sorted(parts - there):
        raise UserError(f"{' and '.join(f.name for f in files)} has no {' and no '.join(missing)}")
    return [(f, test) for f in files if any(map(test, f.requirements))]


def judged(
    workspace: Workspace, wanted: Wanted, seed: int, words: Words, *, quiet: bool
) -> Iterator[Checked]:
    """Each file, with a bar while it is run."""
    from dualml.course.check import absent
    from dualml.course.check import check as check_file
    from dualml.session.progress import working

    here = [file for file, _ in wanted if not missing(file)]
    if not here:
        installed([file for file, _ in wanted])
    for file, test in wanted:
        if file not in here:
            yield absent(file, workspace.path / file.name, seed, missing(file))
            continue
        said = words("course.checking", file=file.name)
        with working(said, quiet=quiet) as update, machine_faults(file):
            checked = check_file(
                file,
                workspace.path / file.name,
                seed,
                chosen=test,
                done=lambda n, of: update(words("course.call", said=said, n=n, of=of)),  # noqa: B023
            )
        yield checked


@contextlib.contextmanager
def machine_faults(file: File) -> Iterator[None]:
    """Say in a line that a file could not be judged because the machine is at fault.

    Raises:
        UserError: in place of what the machine's fault raised.
    """
    from dualml.course.faults import kind_of_fault

    try:
        yield
    except Exception as error:
        if not kind_of_fault(error):
            raise
        why = getattr(error, "strerror", None) or str(error) or "no memory is left"
        raise UserError(
            f"{file.name} is not judged: {why}; the machine is at fault, not the file: try again"
        ) from error


def show(
    checked: Sequence[Checked], seed: int, hints: int, words: Words, brief: bool = False
) -> None:
    from dualml.course.shown import lines

    for one in checked:
        for line in lines(one, hints, words, brief):
            typer.echo(line)
    judgements = [j for c in checked for j in c.judgements]
    met, n = sum(j.status == "met" for j in judgements), len(judgements)
    typer.echo(words("course.summary", met=met, n=n, seed=seed))
    kinds = {p.kind for c in checked for p in c.problems if p.grave}
    if kinds - {"not_installed"}:
        typer.echo(words("course.refused"))
    if hints < 3 and any(j.mistakes for j in judgements):
        typer.echo(words("course.more", hints=hints + 1))


def as_json(
    workspace: Workspace, checked: Sequence[Checked], seed: int, hints: int, words: Words
) -> dict[str, Any]:
    from dualml.course.shown import described

    return {
        "format": workspace.settings.format,
        "workspace": str(workspace.path.resolve()),
        "lab": workspace.lab.name,
        "seed": seed,
        "hints": hints,
        "met": all(c.met for c in checked),
        "files": [described(c, hints, words) for c in checked],
    }


def watching(workspace: Workspace, wanted: Wanted, hints: int, words: Words) -> None:
    """Judge a file whenever it was saved, until Ctrl-C; frameworks stay imported."""
    from dualml.course.watch import changes

    by_name = {file.name: (file, test) for file, test in wanted}
    for names in changes(workspace.path, list(by_name)):
        again = [by_name[name] for name in names]
        try:
            seed = secrets.randbelow(2**31)
            checked = list(judged(workspace, again, seed, words, quiet=False))
            typer.echo(typer.style(time.strftime("── %H:%M:%S "), fg="cyan") + "─" * 40)
            show(checked, seed, hints, words, brief=True)
        except UserError as error:
            complain(str(error))
        typer.echo(words("course.watching"))


def grade(
    folder: Annotated[Path, typer.Argument()],
    secret: Annotated[str | None, typer.Option("--secret")] = None,
    secret_file: Annotated[Path | None, typer.Option("--secret-file")] = None,
    out: Path = Path("grades"),
    lab: Annotated[str, typer.Option(autocompletion=complete.exercises)] = "lab1",
    backend: Annotated[str, COURSE_BACKEND] = "both",
    rubric: Path | None = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=64)] = None,
    json: AsJson = False,
    lang: Annotated[str, LANG] = "en",
) -> None:
    """Judge what a class handed in, with secret draws: points, pages, an overview."""
    from dualml.course.grading import grade as grading
    from dualml.course.grading import rubric as rubrics
    from dualml.course.grading.finish import finish
    from dualml.course.grading.secret import read_secret
    from dualml.course.grading.submissions import submissions
    from dualml.course.labs import lab as lab_of
    from dualml.course.workspace import BACKENDS
    from dualml.course.workspace import chosen as files_of
    from dualml.machine import usable_cores

    words, exercises, warnings = Words(lang), lab_of(lab), list[str]()
    if backend not in BACKENDS:
        raise UserError(f"unknown --backend {backend!r}{nearest(backend, BACKENDS)}")
    text = read_secret(
        secret,
        secret_file,
        lambda: str(typer.prompt(words("grade.no_secret"), hide_input=True, err=True)),
        lambda kind, path: warnings.append(words(f"grade.secret_{kind}", path=path)),
    )
    files = files_of(exercises, BACKENDS[backend])
    installed(files)
    request = grading.Request(exercises, files, text, rubrics.read(rubric, exercises), lang, out)
    apart(folder, out)
    found, others = submissions(folder, out)
    for warning in warnings:
        complain(warning)
    out.mkdir(parents=True, exist_ok=True)
    results = graded(request, found, jobs or usable_cores(), words, quiet=json)
    written, unwritten = finish(request, results, words)
    if json:
        students = {s: {k: r[k] for k in ("points", "most", "refused", "not_graded")}
                    for s, r in results.items()}  # fmt: skip
        answer = {"lab": lab, "out": str(out), "students": students, "passed_over": others}
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


def apart(folder: Path, out: Path) -> None:
    """Refuse to write results into submissions, and to take results for submissions."""
    here, there = folder.resolve(), out.resolve()
    if here == there:
        raise UserError(f"--out must be another folder than the submissions': {out}")
    if here in there.parents and here != there.parent:
        raise UserError(f"--out must not lie inside of a submission: {out}")
    if there / "students" in (here, *here.parents):
        raise UserError(f"{folder} is where --out {out} has its results; name another folder")


def graded(
    request: Request, found: Sequence[Submission], jobs: int, words: Words, *, quiet: bool
) -> dict[str, dict[str, Any]]:
    """The result of every student, with a bar while they are judged."""
    from dualml.course.grading.grade import grade as grade_class
    from dualml.session.progress import working

    said, over = words("grade.grading"), [0]
    with working(said, quiet=quiet) as update:

        def done(student: str, again: bool) -> None:
            over[0] += 1
            update(f"{said} {over[0]}/{len(found)} {student}")

        update(f"{said} 0/{len(found)}")
        try:
            return grade_class(request, found, jobs, done)
        except KeyboardInterrupt:
            complain(words("grade.interrupted", n=over[0], of=len(found)))
            raise


def show_class(
    results: Mapping[str, Mapping[str, Any]], others: Sequence[str], written: Sequence[Path],
    words: Words,
) -> None:  # fmt: skip
    """Who was not judged and why, how many were, and where the results are."""
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


def installed(files: Sequence[File]) -> None:
    """Refuse what needs a framework that is not here."""
    for file in files:
        if command := missing(file):
            raise UserError(
                f"{file.name} needs {file.backend}, which is not installed; install it with: "
                f"{command}; or name the other framework with --backend"
            )


def missing(file: File) -> str:
    """The command that installs the framework of a file; empty where it is here or needs none."""
    from dualml.backend import backends

    info = backends().get(file.backend)
    return "" if info is None or info.installed() else info.install


def paper(folder: Path, lang: str | None) -> Path:
    """Write the student's own report of a workspace."""
    from dualml.course.paper import write
    from dualml.course.workspace import open_workspace
    from dualml.session.progress import working

    workspace = open_workspace(folder)
    words = Words(lang or workspace.settings.lang)
    seed = secrets.randbelow(2**31)
    checked = list(judged(workspace, chosen(workspace, []), seed, words, quiet=False))
    with working(words("course.rendering")) as update:
        return write(workspace, checked, words, update)
