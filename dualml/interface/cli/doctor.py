"""`dualml doctor`: check what works on this machine, and say what to do about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


def doctor(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE|DIR")] = None,
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Show what is installed, what does not fit together, and the remedy; exit with 0 if a
    backend works, else 1. With files, show the names of version 0.1 that they still use instead,
    and exit with 0 whatever is found."""
    from rich.console import Console

    from dualml.interface.doctor import Diagnosis, diagnose

    if files:
        from dualml.interface.doctor.former_uses import examine_files

        diagnosis = Diagnosis({"files": list(examine_files(files))}, {})
        show_or_print(diagnosis, as_json, lang)
        return
    words = section_messages(lang, "doctor")
    with Console(stderr=True).status("") as status:
        diagnosis = diagnose(
            lambda section: status.update(f"{words['examining']} {words.get(section, section)}")
        )
    show_or_print(diagnosis, as_json, lang)
    raise typer.Exit(0 if diagnosis.ok else 1)


def show_or_print(diagnosis: Diagnosis, as_json: bool, lang: str) -> None:
    """Print a diagnosis as JSON or as text; of backends, if it examined any, which ones work."""
    if as_json:
        print_json(diagnosis.describe(lang), "doctor")
        return
    show_diagnosis(diagnosis, lang)
    words = section_messages(lang, "doctor")
    names = ", ".join(name for name, works in diagnosis.works.items() if works)
    if names:
        print_text(words["works"].format(names=names))
    elif diagnosis.works:
        typer.secho(words["none"], fg="red")


def show_diagnosis(diagnosis: Diagnosis, lang: str) -> None:
    """Print one line per finding, with its remedy below."""
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
