"""``dualml top``: the resource usage of running ranks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError, did_you_mean
from dualml.interface.cli import complete
from dualml.interface.cli.options import RUNS, AsJson, Lang
from dualml.interface.cli.output import print_json


def top(
    what: Annotated[
        str | None, typer.Argument(metavar="[ID|FOLDER]", autocompletion=complete.jobs_and_runs)
    ] = None,
    once: Annotated[bool, typer.Option("--once")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=3600, metavar="SECONDS")] = 1.0,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Show how running ranks use their machines, every ``every`` seconds until Ctrl-C, or once if
    asked or not on a terminal."""
    import sys

    from rich.console import Console, Group
    from rich.live import Live

    from dualml.common.words import Messages
    from dualml.report.live_usage import active_ranks, tables
    from dualml.report.page.terminal import render

    words, console = Messages(lang), Console(highlight=False)

    def render_tables() -> Group:
        """Render the current tables."""
        ranks = [rank for run in run_folders(what) for rank in active_ranks(run)]
        grids = [render(t, console.width) for t in tables(ranks, words, runs=what is None)]
        return Group(*grids if grids else [words("usage.none")])

    if json:
        ranks = [rank.describe() for run in run_folders(what) for rank in active_ranks(run)]
        print_json({"ranks": ranks}, "top")
    elif once or not sys.stdout.isatty():
        console.print(render_tables())
    else:
        with Live(render_tables(), console=console, auto_refresh=False, screen=True) as live:
            while True:  # until Ctrl-C
                time.sleep(every)
                live.update(render_tables(), refresh=True)


def run_folders(what: str | None) -> list[Path]:
    """Return the run folders to show: the one of the job number or the path ``what``, or without it
    those of all running jobs, and those in ``runs/``.

    Raises:
        UserError: there is no such job or folder.
    """
    from dualml.runner.jobs.store import Jobs, jobs_folder

    jobs = Jobs(jobs_folder())
    if what is None:
        running = [jobs.job(n).out for n in jobs.numbers() if jobs.state(n).status == "running"]
        here = [path.parent for path in RUNS.glob("*/run.json")]
        return sorted({path.absolute() for path in [*map(Path, running), *here]})
    if what.isdecimal() and not Path(what).is_dir():
        return [Path(jobs.job(int(what)).out)]
    if not (Path(what) / "run.json").is_file():
        hint = did_you_mean(what, complete.runs(), fallback=": see dualml jobs, and dualml runs")
        raise UserError(f"{what} is neither the number of a job nor a run folder{hint}")
    return [Path(what)]
