"""``dualml jobs``, ``status``, ``logs``, ``stop`` and ``resume``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualml.common.errors import UserError, escape_unprintable
from dualml.interface.cli.options import JOB, AsJson, Lang
from dualml.interface.cli.output import print_json, print_text

Job = Annotated[str, JOB]


def jobs(
    everything: Annotated[bool, typer.Option("--all")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """List waiting and running jobs, and the last ones that ended."""
    from dualml.common.words import Messages
    from dualml.report.page import terminal
    from dualml.runner.jobs.control import list_jobs
    from dualml.runner.jobs.store import Jobs, jobs_folder
    from dualml.runner.jobs.table import jobs_table

    found = list_jobs(Jobs(jobs_folder()), everything)
    if json:
        print_json({"jobs": [row.describe() for row in found]}, "jobs")
    elif found:
        terminal.show(jobs_table(found, Messages(lang)))
    else:
        print_text(Messages(lang)("jobs.none"))


def status(job: Job, json: AsJson = False, lang: Lang = "en") -> None:
    """Show the state of a job, and of each worker of a command."""
    from dualml.common.words import Messages
    from dualml.report.page import terminal
    from dualml.runner.jobs.status import describe, job_tables
    from dualml.runner.jobs.store import Jobs, jobs_folder

    jobs = Jobs(jobs_folder())
    described = describe(jobs, jobs.job(jobs.find_number(job)))
    if json:
        print_json(described, "status")
        return
    for table in job_tables(described, Messages(lang)):
        terminal.show(table)


def print_status(number: int, status: str, json: bool, lang: str) -> None:
    """Print the number and the state of a job, as JSON or as a sentence."""
    from dualml.common.words import Messages

    if json:
        print_json({"id": number, "status": status}, "job")
        return
    words = Messages(lang)
    print_text(words("jobs.now", id=number, status=words(f"jobs.status.{status}")))


def logs(
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    rank: Annotated[int | None, typer.Option(min=0)] = None,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Print the log of a job."""
    from dualml.runner.jobs.logs import iter_log
    from dualml.runner.jobs.store import Jobs, jobs_folder

    jobs = Jobs(jobs_folder())
    number = jobs.find_number(job)
    if json and follow:
        raise UserError("--json prints a log as it is now; leave out --follow")
    pieces = iter_log(jobs, jobs.job(number), rank, follow)
    if json:
        print_json({"id": number, "rank": rank, "lines": "".join(pieces).splitlines()}, "logs")
        return
    for piece in pieces:
        typer.echo(escape_unprintable(piece, "\n\t"), nl=False)


def stop(job: Job, json: AsJson = False, lang: Lang = "en") -> None:
    """Stop a job, or remove it from the queue."""
    from dualml.runner.jobs.control import stop as end
    from dualml.runner.jobs.store import Jobs, jobs_folder

    jobs = Jobs(jobs_folder())
    number = jobs.find_number(job)
    print_status(number, end(jobs, number).status, json, lang)


def resume(job: Job, json: AsJson = False, lang: Lang = "en") -> None:
    """Put a job that failed or was stopped into its queue again, and print its state."""
    from dualml.runner.jobs.control import resume as go_on
    from dualml.runner.jobs.store import Jobs, jobs_folder

    jobs = Jobs(jobs_folder())
    number = jobs.find_number(job)
    go_on(jobs, number)
    print_status(number, jobs.state(number).status, json, lang)
