"""``dualml clean``: remove runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import RUN, RUNS, OutputOptions
from dualml.interface.cli.output import complain, print_json, print_text


@dataclass(frozen=True)
class RunConditions:
    """Conditions on the runs in runs/ that are to be removed."""

    older: Annotated[str | None, typer.Option(metavar="30d")] = None
    failed: Annotated[bool, typer.Option("--failed")] = False
    keep: Annotated[int | None, typer.Option(min=0, metavar="N")] = None

    @property
    def has_conditions(self) -> bool:
        """Whether there is any condition."""
        return self.older is not None or self.failed or self.keep is not None


@with_option_groups
def clean(
    folders: Annotated[list[Path] | None, RUN] = None,
    *,
    conditions: RunConditions,
    yes: Annotated[bool, typer.Option("--yes", "-y")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    output: OutputOptions,
) -> None:
    """Remove run folders: those that are named, or those in runs/ that match all conditions.

    Lists them first and asks for confirmation.
    """
    from dualml.common.words import Messages
    from dualml.common.words.numbers import nbytes
    from dualml.interface.housekeeping import listing, removal
    from dualml.report.page import terminal
    from dualml.runner.jobs.store import Jobs, jobs_folder

    if bool(folders) == conditions.has_conditions:
        raise UserError("say what goes: run folders, or --older, --failed, --keep")
    jobs, words = Jobs(jobs_folder()), Messages(output.lang)
    if folders:
        choice = removal.plan_named(listing.rows_of_folders(folders), jobs)
    else:
        older = conditions.older
        choice = removal.plan_filtered(
            RUNS,
            listing.list_runs(RUNS, None),
            jobs,
            older=None if older is None else removal.parse_age(older),
            failed=conditions.failed,
            keep=conditions.keep or 0,
        )
    size = sum(row.size for row in choice.to_remove)
    if not output.json:
        for path, why in choice.kept.items():
            print_text(words("runs.stays", path=path, why=why))
        if choice.to_remove:
            terminal.show(listing.runs_table(choice.to_remove, words))
        key = "runs.would_go" if dry_run else "runs.goes"
        print_text(
            words.plural(key, len(choice.to_remove), n=len(choice.to_remove), size=nbytes(size))
        )
    if choice.to_remove and not dry_run:
        if not yes and (output.json or not sys.stdin.isatty()):
            raise UserError("nothing was removed: say --yes, as nobody is here to be asked")
        if not yes and not typer.confirm(words("runs.sure"), default=False):
            raise typer.Exit(0)
        for row in choice.to_remove:
            removal.remove_run(row)
            complain(words("runs.gone", path=row.summary.path))
    if output.json:
        print_json(
            {
                "dry_run": dry_run,
                "bytes": size,
                "removed": [
                    {"path": str(r.summary.path), "bytes": r.size} for r in choice.to_remove
                ],
                "kept": [{"path": str(path), "why": why} for path, why in choice.kept.items()],
            },
            "clean",
        )
