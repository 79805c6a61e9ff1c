"""``dualml list`` and ``dualml show``."""

from __future__ import annotations

from typing import Annotated

import typer

from dualml.common.errors import escape_unprintable
from dualml.common.files import read_toml
from dualml.common.words import Messages
from dualml.experiment.find import experiment_files
from dualml.interface.cli.options import LAB, SET, AsJson, Lang
from dualml.interface.cli.output import print_json, print_text


def list_(json: AsJson = False, lang: Lang = "en") -> None:
    """List the experiments that come with dualml."""

    tables = {name: read_toml(path) for name, path in experiment_files().items()}
    if json:
        print_json(
            [
                {"name": name, "title": t.get("title", {}), "arms": list(t.get("arms", {}))}
                for name, t in tables.items()
            ]
        )
        return
    width = max((len(name) for name in tables), default=0)
    for name, table in tables.items():
        print_text(f"{name:<{width}}  {table.get('title', {}).get(lang, '')}")


def show(
    lab: Annotated[str, LAB],
    set_: Annotated[list[str] | None, SET] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Print one experiment with all its arms, fully resolved.

    With ``--quick`` it has only the arms that ``dualml run --quick`` runs, in their short form.
    """
    from dualml.experiment.load import load

    arms = [] if quick else ["all"]
    experiment = load(lab, overrides=set_ or [], arms=arms, quick=quick)
    if json:
        print_json(experiment.describe(), "show")
        return
    from rich.console import Console

    from dualml.interface.cli.arms import arm_tables, describe_common
    from dualml.report.page import terminal

    words, console = Messages(lang), Console(highlight=False)
    title = experiment.title.get(lang) or experiment.title.get("en", "")
    console.print(escape_unprintable(f"{experiment.name}: {title}"), style="bold", markup=False)
    console.print(escape_unprintable(describe_common(experiment, words), "\n"), markup=False)
    for table in arm_tables(experiment, words):
        console.print()
        terminal.show(table, console)
    console.print()
    console.print(words("show.defaults"), markup=False)
