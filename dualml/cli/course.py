"""``dualml new`` and ``dualml check``: students' workspaces."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
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
    from dualml.course.workspace import Workspace

#: Exit codes: all requirements are met, or some are not.
MET, NOT_MET = 0, 3
COURSE_BACKEND = typer.Option("--backend", "-b", autocompletion=complete.backends)
#: Files to check, each with a predicate that selects its requirements.
Wanted = list[tuple["File", Callable[["Requirement"], bool]]]


def new(
    lab: Annotated[str, typer.Argument(autocompletion=complete.exercises)],
    folder: Annotated[Path, typer.Argument()],
    backend: Annotated[str, COURSE_BACKEND] = "both",
    notebook: Annotated[bool, typer.Option("--notebook")] = False,
    json: AsJson = False,
    lang: Annotated[str, LANG] = "en",
) -> None:
    """Create a workspace with the exercises of a lab."""
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
    """Check what a student has written; exit with 3 if a requirement is not met."""
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
    """Return the files to check, each with a predicate that selects its requirements.

    Names may be files, tasks or backends, which select files, and classes, functions or
    requirements, which select within those files, or within all files. Without names, everything is
    selected.

    Raises:
        UserError: a name is unknown.
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
    """Check each file, with a progress bar, and yield the results."""
    from dualml.course.check import absent
    from dualml.course.check import check as check_file
    from dualml.course.isolation.client import find_isolation
    from dualml.session.progress import working

    told = False
    here = [file for file, _ in wanted if not missing(file)]
    if not here:
        installed([file for file, _ in wanted])
    for file, test in wanted:
        if file not in here:
            yield absent(file, workspace.path / file.name, seed, missing(file))
            continue
        said = words("course.checking", file=file.name)
        with machine_faults(file):
            around = find_isolation(file.backend)
        if not around.walls and not told:
            complain(words("course.no_walls", why=around.why))
            told = True
        with working(said, quiet=quiet) as update, machine_faults(file):
            checked = check_file(
                file,
                workspace.path / file.name,
                seed,
                chosen=test,
                done=lambda n, of: update(words("course.call", said=said, n=n, of=of)),  # noqa: B023
                isolation=around,
            )
        yield checked


@contextlib.contextmanager
def machine_faults(file: File) -> Iterator[None]:
    """Report a fault of the machine in one line, as the reason why a file could not be checked.

    Raises:
        UserError: replaces the error that the fault raised.
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
    """Print the results, the summary, and how to get more hints."""
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
    """Return the results as a JSON-serializable dict."""
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
    """Check a file whenever it is saved, until Ctrl-C; frameworks stay imported."""
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


def installed(files: Sequence[File]) -> None:
    """Raise `UserError` if a file needs a framework that is not installed."""
    for file in files:
        if command := missing(file):
            raise UserError(
                f"{file.name} needs {file.backend}, which is not installed; install it with: "
                f"{command}; or name the other framework with --backend"
            )


def missing(file: File) -> str:
    """Return the command that installs a file's framework; empty if installed or not needed."""
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
