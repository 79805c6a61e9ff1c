"""``dualml runs``: list the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.options import RUNS, AsJson, Lang
from dualml.interface.cli.output import print_json, print_text


def runs(
    folder: Annotated[Path, typer.Argument()] = RUNS, json: AsJson = False, lang: Lang = "en"
) -> None:
    """List the runs in a folder, with the default folder also those of jobs, the newest first."""
    from dualml.common.words import Messages
    from dualml.interface.housekeeping.listing import list_runs, runs_table
    from dualml.report.page import terminal
    from dualml.runner.jobs.store import Jobs, jobs_folder

    if folder != RUNS and not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one that has runs in it, or a run")
    words = Messages(lang)
    found = list_runs(folder, Jobs(jobs_folder()) if folder == RUNS else None)
    if json:
        print_json({"runs": [row.describe() for row in found]}, "runs")
    elif found:
        terminal.show(runs_table(found, words))
    else:
        print_text(words("runs.none", folder=folder))
