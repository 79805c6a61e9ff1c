"""Terminal output of `dualml diffs`: the table of all entries, and the page of one entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.syntax import Syntax
from rich.table import Table as Grid
from rich.text import Text

from dualml.common.words import section_messages
from dualml.interface.cli.output import print_text
from dualml.parity.diffs.code import helper_source, package_of, probe_code
from dualml.parity.diffs.measure import DEVICE, SIDES
from dualml.parity.diffs.messages import (
    format_silence,
    is_silent,
    listing_heading,
    measured_sentence,
    table_cells,
)
from dualml.report.blocks import Cell, Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.backend import BackendInfo
    from dualml.parity.diffs.compare import EntryResult
    from dualml.parity.diffs.entry import DifferenceEntry, Lang

#: Columns between two listings side by side.
GAP = 4


def print_table(
    entries: Sequence[DifferenceEntry],
    measured: Sequence[EntryResult] | None,
    versions: Mapping[str, str | None],
    lang: Lang,
) -> None:
    """Print these entries by topic, and how many of them are silent and, if measured, as
    described."""
    words = section_messages(lang, "diffs")
    by_name = {one.entry.name: one for one in measured or ()}
    heads = ("entry", "what", "silent", *(("effect", "after", "state") if measured else ()))
    columns = [Column(key, words[key]) for key in heads]
    for topic, called in section_messages(lang, "diffs.topic").items():
        rows = [
            [
                entry.name,
                getattr(entry.title, lang),
                Cell(format_silence(entry, words), "muted" if is_silent(entry) else ""),
                *result_cells(by_name.get(entry.name), lang),
            ]
            for entry in entries
            if entry.topic == topic
        ]
        if rows:
            terminal.show(Table(topic, f"{called} ({topic})", columns, rows))
            print_text()
    counts = [words["summary"].format(n=len(entries), silent=sum(map(is_silent, entries)))]
    if measured is not None:
        wrong = [one.entry.name for one in measured if one.problem]
        counts.append(words["described"].format(n=len(measured) - len(wrong)))
        if wrong:
            names = words["comma"].join(wrong)
            counts.append(words["changed"].format(n=len(wrong), names=names))
    print_text(words["join"].join(counts) + words["period"])
    if measured is not None:
        listed = ", ".join(f"{name} {version}" for name, version in versions.items())
        print_text(words["here"].format(versions=listed, device=DEVICE))
    print_text(words["more"])


def result_cells(one: EntryResult | None, lang: Lang) -> list[Cell | str]:
    """Return the cells with measured values; none without a measurement."""
    return [] if one is None else [*table_cells(one, lang), state_cell(one, lang)]


def print_entry(entry: DifferenceEntry, measured: EntryResult | None, lang: Lang) -> None:
    """Print everything known about one entry."""
    words, console = section_messages(lang, "diffs"), Console(highlight=False)
    topic = words[f"topic.{entry.topic}"]
    print_text(f"{entry.name} · {topic} · {format_silence(entry, words, '.long')}\n")
    console.print(terminal.render_inline(getattr(entry.title, lang), "bold"))
    facts: list[list[Cell | str]] = [
        *([words[side], getattr(getattr(entry, side), lang)] for side in SIDES),
        [words["remedy"], getattr(entry.remedy, lang)],
    ]
    if measured is not None and measured.plain is not None:
        facts.append([words["measured"], measured_sentence(measured, lang)])
        facts.append(["", state_cell(measured, lang, verbose=True)])
    facts.append([words["seen"], words["comma"].join(entry.seen)])
    facts += [["" if k else words["sources"], source] for k, source in enumerate(entry.sources)]
    if entry.ranks > 1:
        facts.append(["", words["ranks"].format(n=entry.ranks)])
    print_text()
    terminal.show(Table("facts", "", [Column("key", ""), Column("value", "")], facts), console)
    print_listings(entry, words, console)


def state_cell(measured: EntryResult, lang: Lang, *, verbose: bool = False) -> Cell:
    """Return the cell ``ok``, or that the entry changed, with ``verbose`` also how; or that the
    entry has no measurement."""
    words = section_messages(lang, "diffs")
    if measured.plain is None:
        return Cell(words["none"])
    if measured.problem is None:
        return Cell(words["ok"], "good")
    more = words["colon"] + (measured.problem_in(lang) or "") if verbose else ""
    return Cell(words["problem" if verbose else "changed.short"] + more, "bad")


def print_listings(entry: DifferenceEntry, words: Mapping[str, str], console: Console) -> None:
    """Print the code of both frameworks that shows the difference and its remedy, and its helper
    functions, side by side if it fits."""
    codes = {side: probe_code(entry, package_of(side)) for side in SIDES}
    for variant in ("plain", "equal"):
        parts = [
            (listing_heading(side, variant, words), codes[side].get(variant)) for side in SIDES
        ]
        if any(text is not None for _, text in parts):
            print_side_by_side(parts, words, console)
    parts = [
        (listing_heading(side, "helpers", words), helper_source([entry], package_of(side)))
        for side in SIDES
    ]
    if any(text for _, text in parts):
        print_side_by_side([(head, text) for head, text in parts if text], words, console)


def print_side_by_side(
    parts: Sequence[tuple[str, str | None]], words: Mapping[str, str], console: Console
) -> None:
    """Print listings of Python code under their headings, side by side if the console is wide
    enough, otherwise one after the other. In ``parts``, None stands for code that stays
    unchanged."""
    shown = [
        (
            Text(head, "bold"),
            Text(words["code.unchanged"], "dim") if text is None else highlight_python(text),
        )
        for head, text in parts
    ]
    widths = [max(line.cell_len for one in pair for line in one.split()) for pair in shown]
    if sum(widths) + GAP * (len(widths) - 1) <= console.width:
        grid = Grid.grid(padding=(0, GAP))
        grid.add_row(*(Group(*pair) for pair in shown))
        console.print()
        console.print(grid)
        return
    for pair in shown:  # without line breaks, so that it can be copied
        console.print()
        console.print(*pair, sep="\n", soft_wrap=True)


def highlight_python(text: str) -> Text:
    """Highlight Python code, without trailing spaces."""
    code = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(text)
    code.rstrip()
    return code


def print_install_hint(missing: Sequence[BackendInfo], lang: Lang) -> None:
    """Print for each missing framework that nothing was measured without it, and how to install
    it."""
    for info in missing:
        text = section_messages(lang, "diffs")["hint"].format(name=info.name, install=info.install)
        typer.secho(text, fg="yellow")
