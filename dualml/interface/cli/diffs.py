"""`dualml diffs`: semantic differences of PyTorch and MindSpore, measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.files import write_bytes
from dualml.common.words import section_messages
from dualml.interface.cli import complete
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import complain, print_json, print_text

if TYPE_CHECKING:
    from dualml.backend import BackendInfo
    from dualml.parity.diffs.compare import EntryResult
    from dualml.parity.diffs.entry import DifferenceEntry
    from dualml.parity.diffs.entry import Lang as Language

Option = typer.Option


def diffs(
    name: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME or WORDS]", autocompletion=complete.differences),
    ] = None,
    topic: Annotated[str | None, Option(metavar="TOPIC", autocompletion=complete.topics)] = None,
    no_run: Annotated[bool, Option("--no-run")] = False,
    as_json: AsJson = False,
    lang: Lang = "en",
    page: Annotated[Path | None, Option(metavar="DIR")] = None,
) -> None:
    """Show semantic differences of PyTorch and MindSpore, and whether they hold on this machine.

    Exits with 1 if a behaviour differs from the catalogue.
    """
    from dualml.parity.diffs.load import entries_of_topic
    from dualml.parity.diffs.lookup import search_entries
    from dualml.parity.diffs.measure import DEVICE, frameworks, versions

    chosen: Language = "zh" if lang == "zh" else "en"
    if name and topic is not None:
        raise UserError("a NAME or a --topic, not both")
    entries = search_entries(name) if name else entries_of_topic(topic)
    sides = frameworks()
    missing = [info for info in sides.values() if not info.installed()]
    if page is not None:
        check_page(bool(name), topic, no_run, missing)
    measured = None if no_run or missing else measure_entries(entries, sides, chosen)
    installed = versions(sides)
    if as_json:
        print_json(describe_entries(entries, measured, installed, DEVICE), "diffs")
    elif page is None:
        from dualml.interface.cli import diffs_terminal as shown

        if name and len(entries) == 1:
            shown.print_entry(entries[0], measured[0] if measured else None, chosen)
        else:
            shown.print_table(entries, measured, installed, chosen)
        if missing and not no_run:
            shown.print_install_hint(missing, chosen)
    code = report_problems(measured or [], chosen)
    if page is not None and not code:
        assert measured is not None
        write_pages(page, measured, installed, quiet=as_json)
    raise typer.Exit(code)


def check_page(
    named: bool, topic: str | None, no_run: bool, missing: Sequence[BackendInfo]
) -> None:
    """Raise `UserError` unless a page would have all entries, freshly measured."""
    if named or topic is not None:
        raise UserError("--page writes the whole catalogue: without NAME and --topic")
    if no_run:
        raise UserError("--page shows what is measured: without --no-run")
    for info in missing:
        raise UserError(f"--page measures both frameworks; install {info.name}: {info.install}")


def measure_entries(
    entries: Sequence[DifferenceEntry], sides: Mapping[str, BackendInfo], lang: Language
) -> list[EntryResult]:
    """Measure the entries, with a status line on standard error."""
    from rich.console import Console

    from dualml.parity.diffs.measure import measure_entries

    running = section_messages(lang, "diffs")["running"]
    with Console(stderr=True).status(running) as status:
        return measure_entries(entries, sides, lambda what: status.update(f"{running} {what}"))


def describe_entries(
    entries: Sequence[DifferenceEntry],
    measured: Sequence[EntryResult] | None,
    versions: Mapping[str, str | None],
    device: str,
) -> dict[str, Any]:
    """Return ``versions``, ``device``, whether it was ``measured``, ``ok`` and the ``entries``,
    with code and measurement, as a JSON-serializable dict; ``ok`` is None if nothing was
    measured."""
    from dualml.parity.diffs.code import code_with_helpers, package_of
    from dualml.parity.diffs.messages import describe_entry

    both: Sequence[EntryResult | None] = measured or [None] * len(entries)
    return {
        "versions": dict(versions),
        "device": device,
        "measured": measured is not None,
        "ok": None if measured is None else not any(one.problem for one in measured),
        "entries": [
            describe_entry(
                entry, one, {side: code_with_helpers(entry, package_of(side)) for side in versions}
            )
            for entry, one in zip(entries, both, strict=True)
        ],
    }


def report_problems(measured: Sequence[EntryResult], lang: Language) -> int:
    """Print the entries that differ from the catalogue, to standard error, and return the exit
    code: 1 if there are any, else 0."""

    wrong = [one for one in measured if one.problem]
    for one in wrong:
        complain(f"{one.entry.name}: {one.problem_in(lang)}")
    return 1 if wrong else 0


def write_pages(
    folder: Path,
    measured: Sequence[EntryResult],
    versions: Mapping[str, str | None],
    *,
    quiet: bool,
) -> None:
    """Write the pages of the catalogue in all languages into an existing folder, and print their
    paths unless ``quiet``; raise `UserError` if there is no such folder."""
    from dualml.parity.diffs.page import PAGES, render_page

    if not folder.is_dir():
        raise UserError(f"--page {folder}: no such folder")
    for lang, file in PAGES.items():
        by_name = {one.entry.name: one for one in measured}
        text = render_page([one.entry for one in measured], lang, by_name, versions)
        write_bytes(folder / file, text.encode())
        if not quiet:
            print_text(f"→ {folder / file}")
