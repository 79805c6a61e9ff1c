"""``dualml largest``: find the largest decoder that trains within a memory limit per rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import TrialError, UserError
from dualml.common.words import Messages
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import OutputOptions
from dualml.interface.cli.output import complain, print_json, print_text
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.experiment.store.largest import LargestRecord, SizeAttempt
    from dualml.runner.largest.search import SizeSearch, SizeSearchGrid

Option = typer.Option
MAX_RANKS, MAX_UPDATES, MAX_BATCH = 64, 1000, 4096


@dataclass(frozen=True)
class SizeSearchOptions:
    """The settings with which every size is trained."""

    ranks: Annotated[int, Option("--ranks", metavar="N")] = 2
    zero: Annotated[str, Option(metavar="N,N")] = "0"
    recompute: Annotated[str, Option(metavar="NAME,NAME")] = "none"
    backend: Annotated[str, Option("--backend")] = "torch"
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE")] = None
    batch: Annotated[int, Option(metavar="N")] = 8
    updates: Annotated[int, Option(metavar="N")] = 3


@with_option_groups
def largest(
    model: Annotated[str, typer.Argument(metavar="MODEL|LAB")],
    memory: Annotated[str, Option(metavar="SIZE")],
    *,
    training: SizeSearchOptions,
    out: Annotated[Path | None, Option(metavar="DIR")] = None,
    output: OutputOptions,
) -> None:
    """Train larger and larger models within a memory limit until one does not fit."""
    from dualml.backend import select_backends
    from dualml.experiment.store.largest import LARGEST
    from dualml.planning.cost.units import parse_bytes
    from dualml.planning.planner.axes import parse_choices
    from dualml.planning.planner.layouts import RECOMPUTED
    from dualml.planning.planner.models import find_model
    from dualml.planning.planner.zoo import shape_from_spec, spec_from_shape
    from dualml.report import largest as shown
    from dualml.runner.largest import search

    ranks, batch, updates = training.ranks, training.batch, training.updates
    check_range("--ranks", ranks, MAX_RANKS)
    check_range("--updates", updates, MAX_UPDATES)
    check_range("--batch", batch, MAX_BATCH)
    if batch % ranks:
        raise UserError(
            f"--batch {batch} does not divide into equal parts for {ranks} ranks; "
            f"use {batch - batch % ranks + ranks}"
        )
    shape = shape_from_spec(spec_from_shape(find_model(model, overrides=training.set_ or ())))
    options: SizeSearchGrid = {
        "ranks": ranks,
        "batch": batch,
        "updates": updates,
        "limit": parse_bytes(memory, "--memory"),
        "zero": [int(stage) for stage in parse_choices(training.zero, list("0123"), "--zero")],
        "recompute": parse_choices(training.recompute, RECOMPUTED, "--recompute"),
    }
    if ranks == 1 and options["zero"] != [0]:
        raise UserError(
            f"--zero {training.zero} shards what ranks hold; use --ranks 2 or more, or 0"
        )
    names = [info.name for info in select_backends(training.backend)]
    if "numpy" in names:
        raise UserError(
            "ranks of numpy are threads of one process, which a limit cannot tell apart; "
            "use --backend torch or mindspore"
        )
    words = Messages(output.lang)

    def print_attempt(tried: SizeAttempt) -> None:
        """Print the result of one attempt."""
        complain(shown.describe_try(tried, words))

    record, failed = train_settings(search.iter_searches(shape, options, names), print_attempt, out)
    if record is not None and output.json:
        print_json(LARGEST.content(record), "largest")
    elif record is not None:
        terminal.show(shown.table(record.rows, words))
        for row in record.rows:
            print_text(shown.explain_limit(row, words))
    if failed is not None:
        raise failed


def train_settings(
    settings: Iterable[SizeSearch], on_attempt: Callable[[SizeAttempt], None], out: Path | None
) -> tuple[LargestRecord | None, UserError | TrialError | None]:
    """Search with each setting, and write the record so far into the folder ``out``, if given,
    after each one that succeeds.

    Returns:
        The record, None if nothing succeeded, and the first error, None if nothing failed. An error
        is printed and does not stop the remaining settings.
    """
    from dualml.experiment.store.largest import LARGEST
    from dualml.runner.largest import search

    rows, record, failed = list[dict[str, Any]](), None, None
    for setting in settings:
        try:
            rows.append(search.search_largest(setting, on_attempt).describe())
        except (UserError, TrialError) as reason:
            complain(str(reason))
            failed = failed or reason
            continue
        record = LARGEST.make_record({"rows": rows})
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            LARGEST.write(out, record)
    return record, failed


def check_range(name: str, value: int, most: int) -> None:
    """Raise `UserError` if an option is not in the range from 1 to ``most``."""
    if not 1 <= value <= most:
        raise UserError(f"{name} is from 1 to {most:,}; received {value}")
