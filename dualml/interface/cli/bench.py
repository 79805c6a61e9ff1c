"""`dualml bench`: measure what a backend does on a device, section by section."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.errors import UserError, did_you_mean
from dualml.interface.cli import complete
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import DEVICE, RUNS, OutputOptions
from dualml.interface.cli.output import print_json, print_text

if TYPE_CHECKING:
    from dualml.interface.bench.section import BenchSection

Option = typer.Option


@dataclass(frozen=True)
class MeasuringOptions:
    """The sections to measure, the device, and the time limit."""

    device: Annotated[str, DEVICE] = "auto"
    backend: Annotated[str, Option(metavar="B", autocompletion=complete.backends)] = "torch"
    only: Annotated[list[str] | None, Option(metavar="SECTION")] = None
    quick: Annotated[bool, Option("--quick")] = False
    limit: Annotated[float, Option(metavar="SECONDS", min=10)] = 540.0


@with_option_groups
def bench(
    *,
    measuring: MeasuringOptions,
    out: Annotated[Path | None, Option(metavar="DIR")] = None,
    page: Annotated[Path | None, Option(metavar="DIR")] = None,
    no_run: Annotated[bool, Option("--no-run")] = False,
    output: OutputOptions,
) -> None:
    """Measure what a backend does on a device, in tables; exit with 1 if a check fails. With
    ``no_run`` show the results in ``out``, or else list the sections."""
    from dualml.backend import select_backends
    from dualml.common.files import read_json
    from dualml.common.machine import default_threads, parse_device
    from dualml.common.words import Messages
    from dualml.interface.bench.page import facts, tables, write_pages
    from dualml.interface.bench.run import RESULTS, all_checks_passed, run_sections
    from dualml.interface.bench.section import BenchJob, list_sections
    from dualml.report.page import terminal

    lang, quick = output.lang, measuring.quick
    info, *more = select_backends(measuring.backend)
    if more:
        raise UserError(f"--backend takes one backend; received {measuring.backend}")
    kind, _ = parse_device(measuring.device)
    known = list_sections(info)
    chosen = pick_sections(known, measuring.only)
    check_page(page, kind, measuring.only, quick, no_run)
    words = Messages(lang)
    if no_run:
        results = read_json(out / RESULTS) if out and (out / RESULTS).exists() else None
    else:
        folder = out or RUNS / f"bench-{time.strftime('%Y%m%d-%H%M%S')}"
        if (folder / RESULTS).exists():
            raise UserError(f"{folder} holds results already; name another folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        threads, limit = default_threads(), measuring.limit
        job = BenchJob(info.name, measuring.device, str(folder), threads, quick, limit)

        def print_begin(section: BenchSection, seconds: float) -> None:
            """Print that a section begins, and its time limit."""
            title = words(f"bench.title.{section.name}")
            print_text(words("bench.begins", title=title, seconds=f"{seconds:.0f}"), err=True)

        results = run_sections(info, chosen, job, print_begin)
    if output.json:
        print_json(results, "bench")
    elif results is not None:
        for table in tables(results, lang):
            terminal.show(table)
            print_text()
        print_text("\n".join(facts(results, lang)))
    else:
        for section in known:
            title = words(f"bench.title.{section.name}")
            print_text(f"{section.name}: {title}, ≤ {section.limit_s:.0f} s")
    if not no_run:
        print_text(f"→ {folder / RESULTS}", err=output.json)
    if page is not None:
        if results is not None and (results["device"] == "cpu" or results["quick"]):
            raise UserError("--page shows what was measured on a GPU in full; no page was written")
        for path in write_pages(page, known, results):
            print_text(f"→ {path}", err=output.json)
    raise typer.Exit(0 if results is None or all_checks_passed(results) else 1)


def pick_sections(known: list[BenchSection], only: list[str] | None) -> list[BenchSection]:
    """Return the requested sections in their usual order; all if ``only`` names none.

    Raises:
        UserError: a section is unknown.
    """
    names = [section.name for section in known]
    for name in only or ():
        if name not in names:
            raise UserError(f"unknown section {name!r}{did_you_mean(name, names)}")
    return [section for section in known if not only or section.name in only]


def check_page(
    page: Path | None, kind: str, only: list[str] | None, quick: bool, no_run: bool
) -> None:
    """Check that a page would show all sections of a GPU in full, or that nothing was run.

    Raises:
        UserError: the options would produce an incomplete page, or ``page`` is no folder. Without
            ``page`` everything is accepted.
    """
    if page is None:
        return
    if not page.is_dir():
        raise UserError(f"--page {page}: no such folder")
    if not no_run and (only or quick or kind == "cpu"):
        wrong = "--only" if only else "--quick" if quick else "--device cpu"
        raise UserError(f"--page shows all that was measured on a GPU: leave out {wrong}")
