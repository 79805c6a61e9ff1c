"""`dualml doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dualml.cli.options import AsJson, Lang
from dualml.words import phrases

if TYPE_CHECKING:
    from dualml.doctor import Diagnosis

MARKS = {"ok": "[green]✓[/]", "warn": "[yellow]![/]", "problem": "[red]✗[/]"}


def doctor(
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """What is installed, what does not fit together, and the remedy; 0 if a backend works."""
    from rich.console import Console

    from dualml.cli.output import print_json
    from dualml.doctor import diagnose

    words = phrases(lang, "doctor")
    with Console(stderr=True).status("") as status:
        diagnosis = diagnose(
            lambda section: status.update(f"{words['examining']} {words.get(section, section)}")
        )
    if as_json:
        print_json(diagnosis.describe(lang))
    else:
        show(diagnosis, lang)
    raise typer.Exit(0 if diagnosis.ok else 1)


def show(diagnosis: Diagnosis, lang: str) -> None:
    """One line per finding, its remedy below it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    words = phrases(lang, "doctor")
    console = Console()
    for section, findings in diagnosis.sections.items():
        table = Table(
            title=words.get(section, section), title_justify="left", box=None, show_header=False
        )
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in findings:
            table.add_row(MARKS[finding.mark], finding.item, escape(finding.text(lang)))
            if remedy := finding.remedy(lang):
                table.add_row("", "", f"[bold]{words['remedy']}[/]{escape(remedy)}")
        console.print(table)
        console.print()
    names = ", ".join(name for name, works in diagnosis.works.items() if works)
    console.print(words["works"].format(names=names) if names else f"[red]{words['none']}[/]")
