"""Options that several commands share.

An option with an ``envvar`` is general: it may also be set at the top level of a file of defaults
(`dualml.interface.cli.defaults`), and then applies to every command that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dualml.interface.cli import complete

#: Folder in which `dualml run` and jobs create run folders.
RUNS = Path("runs")


def check_language(context: typer.Context, lang: str | None) -> str | None:
    """Return the language, which may be None, or raise `UserError` if it is unknown."""
    from dualml.common.errors import UserError
    from dualml.interface.cli.defaults import value_origin

    if lang not in (None, "en", "zh"):
        place = value_origin(context, "lang")
        message = f"--lang must be en or zh; received {lang!r}"
        raise UserError(f"{message} ({place})" if place else message)
    return lang


LANG = typer.Option(
    "--lang",
    metavar="en|zh",
    envvar="DUALML_LANG",
    show_envvar=False,
    callback=check_language,
    autocompletion=complete.languages,
)
Lang = Annotated[str, LANG]
AsJson = Annotated[bool, typer.Option("--json")]


@dataclass(frozen=True)
class OutputOptions:
    """The form in which a command prints its result."""

    json: AsJson = False
    lang: Lang = "en"


BACKEND = typer.Option("--backend", "-b", envvar="DUALML_BACKEND", autocompletion=complete.backends)
DEVICE = typer.Option("--device", envvar="DUALML_DEVICE", autocompletion=complete.devices)
OUT_FOLDER = typer.Option("--out", envvar="DUALML_OUT")
THREADS = typer.Option("--threads", min=0, envvar="DUALML_THREADS")

LAB = typer.Argument(autocompletion=complete.labs)
RUN = typer.Argument(autocompletion=complete.runs)
JOB = typer.Argument(autocompletion=complete.jobs)
ARM = typer.Option("--arm", autocompletion=complete.arms)
DATA = typer.Option("--data", autocompletion=complete.datasets)
MODEL = typer.Option("--model", autocompletion=complete.networks)
SET = typer.Option("--set", metavar="KEY=VALUE")
