"""``dualml new`` and ``dualml check``: students' workspaces."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError, did_you_mean
from dualml.common.words import Messages
from dualml.interface.cli import complete
from dualml.interface.cli.options import LANG, AsJson
from dualml.interface.cli.output import complain, print_json

if TYPE_CHECKING:
    from dualml.course.check import CheckResult
    from dualml.course.exercise import ExerciseFile, Requirement
    from dualml.course.workspace import Workspace

#: Exit codes: all requirements are met, or some are not.
EXIT_PASSED, EXIT_NOT_PASSED = 0, 3
COURSE_BACKEND = typer.Option("--backend", "-b", autocompletion=complete.backends)
#: Files to check, each with a predicate that selects its requirements.
Selection = list[tuple["ExerciseFile", Callable[["Requirement"], bool]]]


def new(
    lab: Annotated[str, typer.Argument(autocompletion=complete.exercises)],
    folder: Annotated[Path, typer.Argument()],
    backend: Annotated[str, COURSE_BACKEND] = "both",
    notebook: Annotated[bool, typer.Option("--notebook")] = False,
    json: AsJson = False,
    lang: Annotated[str, LANG] = "en",
) -> None:
    """Create a workspace with the exercises of a lab."""
    from dualml.course.workspace import create_workspace

    written = [str(path) for path in create_workspace(lab, folder, backend, lang, notebook)]
    if json:
        print_json({"folder": str(folder), "files": written}, "files")
        return
    typer.echo("\n".join(written))
    typer.echo(Messages(lang)("course.made", folder=folder))


def check(
    what: Annotated[list[str] | None, typer.Argument()] = None,
    watch: Annotated[bool, typer.Option("--watch")] = False,
    hints: Annotated[int, typer.Option(min=0, max=3)] = 1,
    seed: Annotated[int | None, typer.Option(min=0)] = None,
    json: AsJson = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Check what a student has written; exit with 3 if a requirement is not met."""
    from dualml.course.check import passes_check
    from dualml.course.workspace import open_workspace

    folders = [Path(w) for w in what or () if Path(w).is_dir()]
    if len(folders) > 1:
        raise UserError(f"name one workspace; received {' and '.join(map(str, folders))}")
    workspace = open_workspace(folders[0] if folders else Path())
    names = [w for w in what or () if not Path(w).is_dir()]
    words = Messages(lang or workspace.settings.lang)
    wanted = select_files(workspace, names)
    if watch:
        watch_files(workspace, wanted, hints, words)
        raise typer.Exit(EXIT_PASSED)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    checked = list(check_files(workspace, wanted, drawn, words, quiet=json))
    if json:
        print_json(describe_checked(workspace, checked, drawn, hints, words), "check")
    else:
        show_checked(checked, drawn, hints, words)
    raise typer.Exit(EXIT_PASSED if passes_check(checked) else EXIT_NOT_PASSED)


def select_files(workspace: Workspace, names: Sequence[str]) -> Selection:
    """Return the files to check, each with a predicate that selects its requirements.

    Names may be files, tasks or backends, which select files, and classes, functions or
    requirements, which select within those files, or within all files. Without names, everything is
    selected.

    Raises:
        UserError: a name is unknown.
    """
    from dualml.course.workspace import task_stem

    if not names:
        return [(file, lambda requirement: True) for file in workspace.files]
    own = {f.name: {f.name, f.task, task_stem(f), f.backend} - {""} for f in workspace.files}
    inside = {n for f in workspace.files for r in f.requirements for n in (r.target, r.name)}
    of_files = set[str]().union(*own.values())
    for name in names:
        if name not in inside | of_files:
            raise UserError(
                f"nothing here is called {name!r}{did_you_mean(name, inside | of_files)}"
            )
    asked = set(names)
    parts = asked - of_files
    files = [f for f in workspace.files if parts == asked or asked & own[f.name]]

    def is_wanted(requirement: Requirement) -> bool:
        return not parts or requirement.target in parts or requirement.name in parts

    there = {n for f in files for r in f.requirements for n in (r.target, r.name)}
    if missing := sorted(parts - there):
        raise UserError(f"{' and '.join(f.name for f in files)} has no {' and no '.join(missing)}")
    return [(f, is_wanted) for f in files if any(map(is_wanted, f.requirements))]


def check_files(
    workspace: Workspace, wanted: Selection, seed: int, words: Messages, *, quiet: bool
) -> Iterator[CheckResult]:
    """Check each file, with a progress bar unless ``quiet``, and yield the results; a file whose
    framework is missing gets a result that says so. Raise `UserError` if none can be checked, or
    the machine fails; complain once where there is no isolation."""
    from dualml.course.check import CheckWatcher, report_missing_framework
    from dualml.course.check import check as check_file
    from dualml.course.isolation.client import find_isolation
    from dualml.runner.session.progress import show_activity

    told = False
    here = [file for file, _ in wanted if not missing_install_command(file)]
    if not here:
        check_installed([file for file, _ in wanted])
    for file, test in wanted:
        if file not in here:
            yield report_missing_framework(
                file, workspace.path / file.name, seed, missing_install_command(file)
            )
            continue
        said = words("course.checking", file=file.name)
        with report_machine_faults(f"{file.name} is not judged"):
            around = find_isolation(file.backend)
        if not around.walls and not told:
            complain(words("course.no_walls", why=around.why))
            told = True
        unjudged = f"{file.name} is not judged"
        with show_activity(said, quiet=quiet) as update, report_machine_faults(unjudged):
            checked = check_file(
                file,
                workspace.path / file.name,
                seed,
                select=test,
                watcher=CheckWatcher(
                    lambda n, of: update(words("course.call", said=said, n=n, of=of))  # noqa: B023
                ),
                isolation=around,
            )
        yield checked


@contextlib.contextmanager
def report_machine_faults(failure: str) -> Iterator[None]:
    """Raise `UserError` instead of an error inside the block that is a fault of the machine, such
    as a full disk, and begin its message with ``failure``, what was not done because of it; other
    errors pass."""
    from dualml.course.faults import kind_of_fault

    try:
        yield
    except Exception as error:
        if not kind_of_fault(error):
            raise
        why = getattr(error, "strerror", None) or str(error) or "no memory is left"
        raise UserError(
            f"{failure}: {why}; the machine is at fault, not the file: try again"
        ) from error


def show_checked(
    checked: Sequence[CheckResult], seed: int, hints: int, words: Messages, brief: bool = False
) -> None:
    """Print the results with this number of hints, the summary, and how to get more hints; if
    ``brief`` all met requirements of a file in one line."""
    from dualml.course.rendering import result_lines

    for one in checked:
        for line in result_lines(one, hints, words, brief):
            typer.echo(line)
    judgements = [j for c in checked for j in c.judgements]
    met, n = sum(j.status == "met" for j in judgements), len(judgements)
    typer.echo(words("course.summary", met=met, n=n, seed=seed))
    left = [c.path.name for c in checked if not c.is_begun]
    if 0 < len(left) < len(checked):
        typer.echo(words("course.not_begun", names=left))
    kinds = {p.kind for c in checked for p in c.problems if p.is_grave}
    if kinds - {"not_installed"}:
        typer.echo(words("course.refused"))
    if hints < 3 and any(j.mistakes for j in judgements):
        typer.echo(words("course.more", hints=hints + 1))


def describe_checked(
    workspace: Workspace, checked: Sequence[CheckResult], seed: int, hints: int, words: Messages
) -> dict[str, Any]:
    """Return the results as a JSON-serializable dict: workspace, lab, seed and number of hints,
    ``met``, whether all files passed, and ``files``, the result of each."""
    from dualml.course.rendering import result_as_json

    return {
        "format": workspace.settings.format,
        "workspace": str(workspace.path.resolve()),
        "lab": workspace.lab.name,
        "seed": seed,
        "hints": hints,
        "met": all(c.is_passed for c in checked),
        "files": [result_as_json(c, hints, words) for c in checked],
    }


def watch_files(workspace: Workspace, wanted: Selection, hints: int, words: Messages) -> None:
    """Check a file whenever it is saved, until Ctrl-C; frameworks stay imported."""
    from dualml.course.watch import watch_changes

    by_name = {file.name: (file, test) for file, test in wanted}
    for names in watch_changes(workspace.path, list(by_name)):
        again = [by_name[name] for name in names]
        try:
            seed = secrets.randbelow(2**31)
            checked = list(check_files(workspace, again, seed, words, quiet=False))
            typer.echo(typer.style(time.strftime("── %H:%M:%S "), fg="cyan") + "─" * 40)
            show_checked(checked, seed, hints, words, brief=True)
        except UserError as error:
            complain(str(error))
        typer.echo(words("course.watching"))


def check_installed(files: Sequence[ExerciseFile]) -> None:
    """Raise `UserError` if a file needs a framework that is not installed."""
    for file in files:
        if command := missing_install_command(file):
            raise UserError(
                f"{file.name} needs {file.backend}, which is not installed; install it with: "
                f"{command}; or name the other framework with --backend"
            )


def missing_install_command(file: ExerciseFile) -> str:
    """Return the command that installs a file's framework; empty if it is installed or none is
    needed."""
    from dualml.backend import backends

    info = backends().get(file.backend)
    return "" if info is None or info.installed() else info.install


def write_paper(folder: Path, lang: str | None) -> Path:
    """Check all files of a workspace with a random seed, render the student's ``report.md`` there
    as ``report.html`` with the results, and return its path."""
    from dualml.course.paper import write_paper
    from dualml.course.workspace import open_workspace
    from dualml.runner.session.progress import show_activity

    workspace = open_workspace(folder)
    words = Messages(lang or workspace.settings.lang)
    seed = secrets.randbelow(2**31)
    checked = list(check_files(workspace, select_files(workspace, []), seed, words, quiet=False))
    rendering = show_activity(words("course.rendering"))
    with rendering as update, report_machine_faults("report.html is not written"):
        return write_paper(workspace, checked, words, update)
