"""``dualml largest``: find the largest decoder that trains within a memory limit per rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.cli.options import AsJson, Lang
from dualml.cli.output import complain, print_json, print_text
from dualml.errors import TrialError, UserError
from dualml.report.page import terminal
from dualml.words import Words

if TYPE_CHECKING:
    from dualml.largest.search import Setting
    from dualml.store.largest import LargestRecord, Tried

Option = typer.Option
MOST_RANKS, MOST_UPDATES, MOST_BATCH = 64, 1000, 4096


def largest(
    model: Annotated[str, typer.Argument(metavar="MODEL|LAB")],
    memory: Annotated[str, Option(metavar="SIZE")],
    ranks: Annotated[int, Option("--ranks", metavar="N")] = 2,
    zero: Annotated[str, Option(metavar="N,N")] = "0",
    recompute: Annotated[str, Option(metavar="NAME,NAME")] = "none",
    backend: Annotated[str, Option("--backend")] = "torch",
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE")] = None,
    batch: Annotated[int, Option(metavar="N")] = 8,
    updates: Annotated[int, Option(metavar="N")] = 3,
    out: Annotated[Path | None, Option(metavar="DIR")] = None,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Train larger and larger models within a memory limit until one does not fit."""
    from dualml.backend import choose
    from dualml.cost.units import nbytes
    from dualml.largest import search
    from dualml.planner.layouts import RECOMPUTED
    from dualml.planner.models import find
    from dualml.planner.request import listed
    from dualml.planner.zoo import shape_of, spec_of
    from dualml.report import largest as shown
    from dualml.store.largest import LARGEST

    between("--ranks", ranks, MOST_RANKS)
    between("--updates", updates, MOST_UPDATES)
    between("--batch", batch, MOST_BATCH)
    if batch % ranks:
        raise UserError(
            f"--batch {batch} does not divide into equal parts for {ranks} ranks; "
            f"use {batch - batch % ranks + ranks}"
        )
    shape = shape_of(spec_of(find(model, overrides=set_ or ())))
    options: dict[str, Any] = {
        "ranks": ranks, "batch": batch, "updates": updates,
        "limit": nbytes(memory, "--memory"),
        "zero": [int(stage) for stage in listed(zero, [str(s) for s in range(4)], "--zero")],
        "recompute": listed(recompute, RECOMPUTED, "--recompute"),
    }  # fmt: skip
    if ranks == 1 and options["zero"] != [0]:
        raise UserError(f"--zero {zero} shares out what ranks hold; use --ranks 2 or more, or 0")
    names = [info.name for info in choose(backend)]
    if "numpy" in names:
        raise UserError(
            "ranks of numpy are threads of one process, which a limit cannot tell apart; "
            "use --backend torch or mindspore"
        )
    words = Words(lang)

    def told(tried: Tried) -> None:
        """Print the result of one attempt."""
        complain(shown.line(tried, words))

    record, failed = trained(search.settings(shape, options, names), told, out)
    if record is not None and json:
        print_json(LARGEST.content(record), "largest")
    elif record is not None:
        terminal.show(shown.table(record.rows, words))
        for row in record.rows:
            print_text(shown.next_one(row, words))
    if failed is not None:
        raise failed


def trained(
    settings: Iterable[Setting], told: Callable[[Tried], None], out: Path | None
) -> tuple[LargestRecord | None, UserError | TrialError | None]:
    """Search with each setting, and write ``out`` after each one.

    Returns:
        The record, None if nothing succeeded, and the first error, None if nothing failed. An error
        does not stop the remaining settings.
    """
    from dualml.largest import search
    from dualml.store.largest import LARGEST

    rows, record, failed = list[dict[str, Any]](), None, None
    for setting in settings:
        try:
            rows.append(search.search(setting, told).describe())
        except (UserError, TrialError) as reason:
            complain(str(reason))
            failed = failed or reason
            continue
        record = LARGEST.made({"rows": rows})
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            LARGEST.write(out, record)
    return record, failed


def between(name: str, value: int, most: int) -> None:
    """Raise `UserError` if an option is not in the range from 1 to ``most``."""
    if not 1 <= value <= most:
        raise UserError(f"{name} is from 1 to {most:,}; received {value}")
