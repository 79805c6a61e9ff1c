"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: Where `dualml run` and jobs put their folders.
RUNS = Path("runs")


def known(lang: str | None) -> str | None:
    from dualml.errors import UserError

    if lang not in (None, "en", "zh"):
        raise UserError(f"--lang must be en or zh; received {lang!r}")
    return lang


LANG = typer.Option(
    "--lang", metavar="en|zh", envvar="DUALML_LANG", show_envvar=False, callback=known
)
Lang = Annotated[str, LANG]
AsJson = Annotated[bool, typer.Option("--json")]
