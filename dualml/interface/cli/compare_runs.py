"""``dualml compare`` for two run folders, and ``dualml baseline``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text

if TYPE_CHECKING:
    from dualml.parity.against import RunComparison


Option = typer.Option
#: Options that write a page about any comparison.
PAGES = ("--html", "--markdown")


@dataclass(frozen=True)
class RunComparisonOptions:
    """Options of a comparison of two run folders."""

    arm: list[str] | None = None
    pair: Annotated[list[str] | None, Option(metavar="A=B")] = None
    backend: Annotated[list[str] | None, Option("--backend", "-b")] = None
    metric: list[str] | None = None
    slower: Annotated[float | None, Option(metavar="TIMES")] = None
    more_memory: Annotated[float | None, Option(metavar="TIMES")] = None
    html: Annotated[Path | None, Option(metavar="FILE")] = None
    markdown: Annotated[Path | None, Option(metavar="FILE")] = None

    def own_values(self) -> dict[str, Any]:
        """Return option → value of the options that apply to runs alone, so without those that
        write pages (`PAGES`); None or an empty list if one was not given."""
        values = self.option_values()
        return {option: value for option, value in values.items() if option not in PAGES}

    def option_values(self) -> dict[str, Any]:
        """Return option → value; None or an empty list if it was not given."""
        return {f"--{name.replace('_', '-')}": value for name, value in vars(self).items()}


def compare_folders(
    a: str, b: str, options: RunComparisonOptions, seeds: Sequence[int], margin: float
) -> RunComparison:
    """Compare two run folders, or baselines of runs, by the options; an empty ``seeds`` means all
    seeds. Raise `UserError` for a malformed option, and if they cannot be compared."""
    from dualml.parity.against import compare_runs

    both = dict(parse_pair("--backend", word, allow_single=True) for word in options.backend or [])
    named = dict(parse_pair("--pair", word) for word in options.pair or [])
    return compare_runs(
        a,
        b,
        margin=margin,
        arms=options.arm or None,
        pairs=named or None,
        backends=both or None,
        seeds=seeds or None,
        metrics=options.metric or None,
        slower=options.slower,
        more_memory=options.more_memory,
    )


def parse_pair(option: str, word: str, *, allow_single: bool = False) -> tuple[str, str]:
    """Parse ``a=b`` into two names; with ``allow_single``, a single name is its own partner. Raise
    `UserError` for anything else."""
    name, equals, other = word.partition("=")
    if allow_single and name and not equals:
        return name, name
    if not (name and other):
        raise UserError(f"{option} takes NAME_IN_A=NAME_IN_B; received {word!r}")
    return name, other


def baseline(
    folder: Annotated[Path, typer.Argument(metavar="RUN")],
    target: Annotated[Path, typer.Argument(metavar="DIR")],
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Save the part of a run that later runs are compared with; small enough for a repository."""
    from dualml.common.words import numbers
    from dualml.experiment.store.baseline import write_baseline
    from dualml.experiment.store.run_operand import read_run_operand

    side = read_run_operand(folder)
    if side.folded:
        raise UserError(f"{folder} is a baseline; make one of a run folder")
    size = write_baseline(folder, target, side.starts)
    if json:
        print_json({"folder": str(target), "bytes": size}, "baseline")
    else:
        shown = numbers.nbytes(size)
        print_text(Messages(lang)("against.written", run=folder, folder=target, size=shown))
