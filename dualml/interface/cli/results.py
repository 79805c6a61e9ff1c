"""``dualml report``, ``dualml parity`` and ``dualml find``, from the files of a finished run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.words import Messages
from dualml.interface.cli.options import ARM, LANG, RUN, AsJson, Lang
from dualml.interface.cli.output import (
    complain,
    print_findings,
    print_json,
    print_text,
    print_verdicts,
)

if TYPE_CHECKING:
    from dualml.experiment.store.run import TrialComparison

Force = Annotated[bool, typer.Option("--force")]


def report(
    folders: Annotated[list[Path], RUN],
    out: Path | None = None,
    force: Force = False,
    json: AsJson = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Render the report again, also for several run folders side by side.

    For a workspace, render the student's own report.
    """
    from dualml.course.workspace import is_workspace
    from dualml.report import render

    if len(folders) == 1 and is_workspace(folders[0]):
        from dualml.interface.cli.course import write_paper

        pages = [write_paper(folders[0], lang)]
    else:
        with suggest_force():
            pages = render(folders, out, lang or "en", force)
    files = [str(path) for path in pages]
    print_json({"files": files}, "report") if json else print_text("\n".join(files))


def parity(
    folder: Annotated[Path, RUN],
    force: Force = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Compare the backends of a run folder again, write ``parity.json`` unless ``force``, and print
    the verdicts; exit with 3 if one is `different`."""
    from dualml.experiment.store.findings import read_findings
    from dualml.parity.judge import judge_run, write_parity
    from dualml.runner.outcome import EXIT_DIFFERENT, EXIT_OK

    with suggest_force():
        verdicts = judge_run(folder, verify=not force)
    try:
        if not force:
            write_parity(folder, verdicts)
    except OSError as error:  # a submission that may only be read
        complain(f"parity.json not written: {error.strerror}")
    if json:
        findings = [finding.describe() for finding in read_findings(folder)]
        print_json({**verdicts.describe(), "findings": findings}, "parity")
    else:
        print_verdicts(verdicts, lang)
        print_findings(folder, lang)
    raise typer.Exit(EXIT_DIFFERENT if verdicts.verdict == "different" else EXIT_OK)


def find(
    folder: Annotated[Path, RUN],
    arm: Annotated[list[str] | None, ARM] = None,
    seed: int | None = None,
    all_: Annotated[bool, typer.Option("--all")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Find where and why backends differ or fail, by replaying the update that diverges, for at
    most three differences unless ``all_``, and write ``findings.json``; exit with 3 if there are
    any."""
    from dualml.experiment.store.findings import read_findings
    from dualml.experiment.store.folder import RunFolder, lock_run_folder
    from dualml.parity.judge import judge_run
    from dualml.runner.outcome import EXIT_DIFFERENT, EXIT_OK
    from dualml.runner.session.causes import find_causes

    words = Messages(lang)
    opened, plan = RunFolder.open(folder)
    wanted = judge_run(folder).select(lambda c: is_selected(c, arm, seed))
    with lock_run_folder(folder):
        most = 10**9 if all_ else 3
        differences = find_causes(opened, plan, {}, wanted, words, quiet=json, most=most)
    if json:
        findings = [finding.describe() for finding in read_findings(folder)]
        print_json({"findings": findings}, "find")
    elif differences:
        print_findings(folder, lang)
    else:
        print_text(words("run.nothing_to_find"))
    raise typer.Exit(EXIT_DIFFERENT if differences else EXIT_OK)


@contextlib.contextmanager
def suggest_force() -> Iterator[None]:
    """Replace an error about a changed plan by a `UserError` that says that ``--force`` ignores the
    change."""
    from dualml.common.errors import UserError
    from dualml.experiment.store.plan import PlanChanged

    try:
        yield
    except PlanChanged as error:
        raise UserError(f"{error}; --force reads it anyway") from None


def is_selected(comparison: TrialComparison, arms: list[str] | None, seed: int | None) -> bool:
    """Return whether a comparison matches the requested arms and seed; None or no arms match
    all."""
    return (not arms or comparison.arm in arms) and seed in (None, comparison.seed)
