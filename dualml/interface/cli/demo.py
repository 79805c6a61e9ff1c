"""``dualml demo``: recorded reports, a recorded comparison and the live page on them."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.options import Lang
from dualml.interface.cli.output import print_text


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    no_browser: bool = False,
    lang: Lang = "en",
) -> None:
    """Show recorded reports of every lab, a comparison of a port and the live page in a browser,
    until Ctrl-C; nothing but this package is needed."""
    from dualml.common.words import Messages
    from dualml.interface.cli.open import can_open_browser, open_in_browser
    from dualml.interface.demo.pages import DemoPages
    from dualml.interface.demo.recordings import unpack_runs
    from dualml.interface.serve.server import PageServer
    from dualml.runner.jobs.store import Jobs

    words = Messages(lang)
    with make_temporary_folder() as base:
        runs = Path(base) / "runs"
        unpack_runs(runs)
        jobs = Jobs(Path(base) / "jobs")
        with PageServer(runs, jobs, "127.0.0.1", port, lang, DemoPages) as server:
            print_text(words("demo.at", url=server.gate.url()))
            if not no_browser and can_open_browser():
                # In a thread: a browser of the terminal returns only when it is closed.
                address = (server.gate.url(),)
                threading.Thread(target=open_in_browser, args=address, daemon=True).start()
            server.serve_forever()


def make_temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder that is removed when its ``with`` block is left; raise `UserError` if
    none can be made."""
    try:
        return tempfile.TemporaryDirectory(prefix="dualml-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(
            f"the recordings cannot be unpacked: {error.strerror or error}; "
            "set TMPDIR to a folder that you can write to"
        ) from None
