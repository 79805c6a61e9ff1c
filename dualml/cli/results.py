"""``dualml report`` and ``dualml parity``: from files of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, also of other machines.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write into; default the first.")
    ] = None,
    lang: Annotated[str, typer.Option(help="en or zh")] = "en",
) -> None:
    """Render the report again, also for several run folders side by side."""
    from dualml.cli.output import check_lang
    from dualml.report import render

    check_lang(lang)
    for path in render(folders, out, lang):
        typer.echo(str(path))


def parity(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    json: Annotated[bool, typer.Option("--json", help="The verdicts as JSON.")] = False,
    lang: Annotated[str, typer.Option(help="en or zh")] = "en",
) -> None:
    """Judge a run folder again and print the verdicts; exit 3 if one is `different`."""
    from dualml.cli.output import check_lang, print_json, print_verdicts
    from dualml.parity.judge import judge, worst, write
    from dualml.runner.execute import DIFFERENT, WELL

    check_lang(lang)
    found = judge(folder)
    try:
        write(folder, found)
    except OSError as error:  # a submission that may only be read
        typer.echo(f"dualml: parity.json not written: {error.strerror}", err=True)
    if json:
        print_json(found)
    else:
        print_verdicts(found, lang)
    raise typer.Exit(DIFFERENT if worst(found) == "different" else WELL)
