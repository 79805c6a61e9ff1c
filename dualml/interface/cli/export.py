"""``dualml export``: convert a run for other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dualml.interface.cli.options import RUN, AsJson, Lang
from dualml.interface.cli.output import complain, print_json, print_text
from dualml.interface.cli.results import Force, suggest_force


def export(
    folders: Annotated[list[Path], RUN],
    to: Annotated[str, typer.Option(metavar="TARGET")],
    out: Path | None = None,
    online: Annotated[bool, typer.Option("--online")] = False,
    force: Force = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Write the records of runs as CSV, Parquet, for TensorBoard, MLflow, W&B, or as a trace."""
    from dualml.common.words import Messages
    from dualml.report.export import export as write

    with suggest_force():
        done = write(folders, to, out, lang=lang, online=online, force=force)
    for line in done.unreadable:
        complain(line)
    if json:
        print_json(asdict(done), "export")
        return
    print_text(f"→ {done.where}")
    print_text(Messages(lang).get_formatted(f"export.look.{to}", "", where=done.where))
