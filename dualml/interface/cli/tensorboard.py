"""``dualml tensorboard``: the curves of a job."""

from __future__ import annotations

from typing import Annotated

import typer

from dualml.interface.cli.options import JOB, Lang
from dualml.interface.cli.output import print_text


def tensorboard(
    job: Annotated[str, JOB],
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    lang: Lang = "en",
) -> None:
    """Show a job's curves in TensorBoard until Ctrl-C; print its URL."""
    from dualml.common.words import Messages
    from dualml.runner.jobs.store import Jobs, jobs_folder
    from dualml.runner.jobs.tensorboard import serve_board

    jobs = Jobs(jobs_folder())
    found = jobs.job(jobs.find_number(job))
    for url in serve_board(found, port):
        print_text(Messages(lang)("jobs.board", id=found.id, url=url))
