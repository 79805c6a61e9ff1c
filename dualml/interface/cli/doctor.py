"""`dualml doctor`: check what works on this machine, and say what to do about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from dualml.common.words import section_messages
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Cell, Cells, Column, Table, Tone
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.interface.doctor import Diagnosis

MARKS: Mapping[str, tuple[str, Tone]] = {
    "ok": ("✓", "good"),
    "warn": ("!", "muted"),
    "problem": ("✗", "bad"),
}


def doctor(as_json: AsJson = False, lang: Lang = "en") -> None:
    """Show what is installed, what does not fit together, and the remedy; exit with 0 if a
    backend works."""
    from rich.console import Console

    from dualml.interface.doctor import diagnose

    words = section_messages(lang, "doctor")
    with Console(stderr=True).status("") as status:
        diagnosis = diagnose(
            lambda section: status.update(f"{words['examining']} {words.get(section, section)}")
        )
    if as_json:
        print_json(diagnosis.describe(lang), "doctor")
    else:
        show_diagnosis(diagnosis, lang)
    raise typer.Exit(0 if diagnosis.ok else 1)


def show_diagnosis(diagnosis: Diagnosis, lang: str) -> None:
    """Print one line per finding, with its remedy below, and at the end which backends work."""

    words = section_messages(lang, "doctor")
    columns = [Column(key, "") for key in ("mark", "item", "finding")]
    for section, findings in diagnosis.sections.items():
        rows: list[Cells] = [
            [
                Cell(*MARKS[finding.mark]),
                finding.item,
                Cell(finding.text(lang), note=words["remedy"] + remedy if remedy else ""),
            ]
            for finding in findings
            for remedy in [finding.remedy(lang)]
        ]
        terminal.show(Table(section, words.get(section, section), columns, rows))
        print_text()
    names = ", ".join(name for name, works in diagnosis.works.items() if works)
    if names:
        print_text(words["works"].format(names=names))
    else:
        typer.secho(words["none"], fg="red")
