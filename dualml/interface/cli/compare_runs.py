"""``dualml compare`` for two run folders, and ``dualml baseline``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.words import Messages
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import check_streams, print_json, print_text, write_page

if TYPE_CHECKING:
    from dualml.parity.against import RunComparison


def compare_folders(
    a: str,
    b: str,
    *,
    pair: Sequence[str],
    backend: Sequence[str],
    html: Path | None,
    markdown: Path | None,
    json: bool,
    lang: str,
    **options: Any,
) -> RunComparison:
    """Compare two run folders, and print and write the requested outputs.

    Args:
        options: passed to `dualml.parity.against.compare_runs`.
    """
    from dualml.parity.against import compare_runs
    from dualml.report.comparison_page import comparison_page, pair_table
    from dualml.report.page import terminal

    streamed = check_streams(json, html=html, markdown=markdown)
    both = dict(parse_pair("--backend", word, allow_single=True) for word in backend)
    named = dict(parse_pair("--pair", word) for word in pair)
    against = compare_runs(a, b, pairs=named or None, backends=both or None, **options)
    words = Messages(lang)
    if html is not None:
        from dualml.report.page.html import render_html as page_of

        write_page(html, page_of(comparison_page(against, words)), make_parents=True)
    if markdown is not None:
        from dualml.report.page.markdown import render_markdown as text_of

        write_page(
            markdown, text_of(comparison_page(against, words, drawn=False)), make_parents=True
        )
    if json:
        print_json(against.describe(), "compare-runs")
    elif not streamed:
        print_text(against.paragraph(lang))
        terminal.show(pair_table(against, words))
    return against


def parse_pair(option: str, word: str, *, allow_single: bool = False) -> tuple[str, str]:
    """Parse ``a=b`` into two names; with ``allow_single``, a single name is its own partner."""
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
