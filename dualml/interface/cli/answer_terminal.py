"""Print the page with which a comparison of models or traces answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dualml.common.errors import escape_unprintable
from dualml.common.words import Messages
from dualml.interface.cli.output import print_patch
from dualml.interface.cli.terminal_text import find_terminal

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison

#: Verdict → style of its line, by ECMA-48: green, red, yellow.
VERDICT_STYLES = {"equal": "1;32", "different": "1;31", "not comparable": "1;33"}
#: Role of a line → style: bold heads, cyan marked lines, the lines of a patch.
ROLE_STYLES = {"head": "1", "mark": "36", "added": "32", "removed": "31"}


def print_page(comparison: ModelComparison, lang: str) -> None:
    """Print the page about a comparison as wide as the terminal, at most 100 columns, styled where
    standard output shows styles; then the whole patch, if one was asked for and found."""
    from dualml.parity.models.answer_page import PAGE_COLUMNS, make_page

    terminal, words = find_terminal(), Messages(lang)
    width = min(PAGE_COLUMNS, terminal.width)
    styles = {**ROLE_STYLES, "verdict": VERDICT_STYLES.get(comparison.verdict, "1")}
    hint = words("models.page.verbose")
    said = comparison.patch_lines(lang)[:1]
    for line in make_page(comparison.answer(lang), lang, patch=said, width=width, hint=hint):
        text = escape_unprintable(line.text, "\t")
        label, gap, rest = text.partition("  ") if line.role == "label" else ("", "", text)
        typer.echo(
            terminal.style(label, "1") + gap + terminal.style(rest, styles.get(line.role, "")),
            color=terminal.has_styles,
        )
    if comparison.patch is not None and (
        text := comparison.patch["diff"] + comparison.patch["map"]
    ):
        typer.echo()
        print_patch(text)
