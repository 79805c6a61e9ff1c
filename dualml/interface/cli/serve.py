"""``dualml serve``: a live page of runs and jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.options import RUNS, Lang
from dualml.interface.cli.output import complain, print_text


def serve(
    folder: Annotated[Path, typer.Argument()] = RUNS,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8642,
    host: str = "127.0.0.1",
    lang: Lang = "en",
) -> None:
    """Show runs and jobs in a browser while they run, until Ctrl-C."""
    from dualml.common.words import Messages
    from dualml.interface.serve.server import PageServer
    from dualml.runner.jobs.store import Jobs, jobs_folder

    if folder != RUNS and not folder.is_dir():
        raise UserError(f"{folder} is no folder; name one that has runs in it, or a run")
    words = Messages(lang)
    with PageServer(folder, Jobs(jobs_folder()), host, port, lang) as server:
        if not server.gate.is_local:
            complain(words("serve.warning", host=host))
        print_text(words("serve.at", url=server.gate.url()))
        server.serve_forever()
