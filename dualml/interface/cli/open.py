"""``dualml open``: show a run's report in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from dualml.common.files import open_to_read
from dualml.interface.cli.options import LANG, RUN, RUNS, AsJson
from dualml.interface.cli.output import print_json, print_text


def open_(
    run: Annotated[Path | None, RUN] = None,
    json: AsJson = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Show the report of a run, by default of the newest in ``runs/``, in a browser, or print its
    URL if there is no browser here. The report is rendered if it is missing, or is in another
    language than ``lang``."""
    from dualml.experiment.store.manifest import RUN as MANIFEST
    from dualml.experiment.store.manifest import read_run
    from dualml.experiment.store.report import report_path
    from dualml.interface.housekeeping.listing import latest_run
    from dualml.report import render

    folder = RUNS if run is None else run
    if run is None or (folder.is_dir() and not (folder / MANIFEST.name).exists()):
        folder = latest_run(folder)
    made_in = read_run(folder).lang
    path = report_path(folder)
    if lang not in (None, report_language(path)) or not path.is_file():
        render([folder], lang=lang or made_in)
    url = path.resolve().as_uri()
    opened = can_open_browser() and open_in_browser(url)
    if json:
        print_json({"report": str(path), "url": url, "opened": opened}, "open")
    else:
        print_text(str(path) if opened else url)


def report_language(path: Path) -> str | None:
    """Return the language of a report, ``zh`` if its first 500 bytes say so, else ``en``; None if
    there is no report."""
    if not path.is_file():
        return None
    with open_to_read(path) as page:
        return "zh" if b'lang="zh' in page.read(500) else "en"


def can_open_browser() -> bool:
    """Return whether a browser window would be visible to the user.

    That is not the case over SSH, without a display, or if standard output is no terminal, unless
    ``BROWSER`` names a browser.
    """
    if os.environ.get("BROWSER"):
        return True
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    windows = sys.platform in ("darwin", "win32")
    return windows or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_in_browser(url: str) -> bool:
    """Open a URL in the browser; return whether that worked."""
    import webbrowser

    return webbrowser.open(url)
