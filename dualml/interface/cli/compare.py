"""``dualml compare``: two runs, two traces, two dumps of other tools, or two models."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes
from dualml.common.words import Messages
from dualml.interface.cli.answer_terminal import print_page
from dualml.interface.cli.compare_models import (
    ComparisonOptions,
    ModelComparisonOptions,
    SideOptions,
    compare_models,
    pair_models,
    read_name_map,
)
from dualml.interface.cli.compare_runs import RunComparisonOptions, compare_folders
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import OutputOptions
from dualml.interface.cli.output import (
    check_streams,
    print_json,
    print_patch,
    print_text,
    write_page,
)

if TYPE_CHECKING:
    from dualml.experiment.comparison import Comparison
    from dualml.parity.models.activity import Activity
    from dualml.parity.models.weights.map_only import ModelMap

#: Verdict → exit code; what cannot be compared counts as invalid input.
CODES = {"equal": 0, "statistically equal": 0, "different": 3, "not comparable": 2}


@with_option_groups
def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    *,
    runs: RunComparisonOptions,
    models: ModelComparisonOptions,
    sides: SideOptions,
    matching: ComparisonOptions,
    output: OutputOptions,
) -> None:
    """Compare two runs, two traces, two dumps of other tools, or two models: a port, a
    reimplementation, or one model in two modes, dtypes, devices or environments.

    Exits with 0 if they are equal or statistically equal, 3 if they are different or a limit on
    time or memory is exceeded, 2 if they cannot be compared. With ``--map-only``: 0 if all
    parameters were paired, else 2.
    """
    from dualml.experiment.store.run_operand import are_run_operands
    from dualml.interface.cli.run import parse_seeds
    from dualml.parity.models.activity import tell_activity

    seeds = parse_seeds(matching.seed or [])
    folders = Path(a).is_dir() and Path(b).is_dir()
    schema = "compare"
    if folders and are_run_operands(Path(a), Path(b)):
        own = {**models.option_values(), **sides.option_values()}
        options = {**own, "--map": matching.map_}
        refuse_options(options, "models", a, b, "runs")
        check_streams(output.json, html=runs.html, markdown=runs.markdown)
        schema = "compare-runs"
        comparison: Comparison = compare_folders(a, b, runs, seeds, matching.margin)
    else:
        refuse_options(runs.own_values(), "runs", a, b, "none")
        if models.map_only and not folders:
            seed = read_seed(a, b, seeds)
            return show_map(pair_models(a, b, models, sides, matching, seed), output)
        with tell_activity(partial(print_activity, Messages(output.lang))):
            comparison = compare_traces_or_models(a, b, models, sides, matching, seeds)
    answer = None if matching.verbose or schema != "compare" else print_page
    show_comparison(comparison, schema, output, runs.html, runs.markdown, answer)
    raise typer.Exit(CODES[comparison.final_verdict])


def print_activity(words: Messages, activity: Activity, seconds: float) -> None:
    """Print on standard error what a comparison is doing, and for how many seconds; an error of a
    closed stream is ignored."""
    values = {"seconds": round(seconds), "n": activity.trials}
    with contextlib.suppress(OSError, ValueError):  # standard error was closed
        typer.echo(words(f"models.activity.{activity.phase}", **values), err=True)


def compare_traces_or_models(
    a: str,
    b: str,
    models: ModelComparisonOptions,
    sides: SideOptions,
    matching: ComparisonOptions,
    seeds: list[int],
) -> Comparison:
    """Compare two folders of traces or dumps, or two models.

    Raises:
        UserError: neither two folders nor two models, several seeds, or options that do not apply.
    """
    if Path(a).is_dir() and Path(b).is_dir():
        from dualml.parity.models.run import compare_traces

        own = {**models.option_values(), **sides.option_values()}
        options = {**own, "--seed": matching.seed}
        refuse_options(options, "models", a, b, "traces")
        names = read_name_map(matching.map_)
        return compare_traces(a, b, map=names, margin=matching.margin)
    return compare_models(a, b, models, sides, matching, read_seed(a, b, seeds))


def read_seed(a: str, b: str, seeds: list[int]) -> int:
    """Return the one seed of a comparison of two models, 0 if ``seeds`` is empty. Raise `UserError`
    for several seeds, or if A or B has no ``:``, so that it names no model."""
    if not (":" in a and ":" in b):
        raise operand_error(a, b)
    if len(seeds) > 1:
        raise UserError(f"models are compared with one --seed; received {seeds}")
    return seeds[0] if seeds else 0


def show_map(found: ModelMap, output: OutputOptions) -> None:
    """Print the pairs of two models' parameters, as JSON if asked for, and exit: 0 if all were
    paired, else 2."""
    if output.json:
        print_json(found.describe(), "map")
    else:
        print_text(found.paragraph(output.lang))
    raise typer.Exit(0 if found.is_complete else CODES["not comparable"])


def operand_error(a: str, b: str) -> UserError:
    """Return, not raise, the error for operands that are neither two folders nor two models."""
    one = next(word for word in (a, b) if ":" not in word or Path(word).is_dir())
    if there := model_builders(Path(one)):
        return UserError(
            f"{one}: say what builds the model, as {one}:{there[-1]}; there are {', '.join(there)}"
        )
    return UserError(
        f"compare takes two folders (of runs, traces or dumps), or two models 'file.py:Name'; "
        f"{one!r} is " + ("a folder, the other is not" if Path(one).is_dir() else "neither")
    )


def refuse_options(
    options: dict[str, Any], applies_to: str, a: str, b: str, operand_kind: str
) -> None:
    """Raise `UserError` if an option was given that does not apply to the kind of A and B.

    Args:
        options: option → value; None or an empty list if it was not given.
        applies_to: the kind of comparison that these options apply to.
        a, b: the two operands.
        operand_kind: the kind of the two operands.
    """
    if wrong := [word for word, value in options.items() if value not in (None, [])]:
        raise UserError(f"{', '.join(wrong)}: of {applies_to}; {a} and {b} are {operand_kind}")


def model_builders(path: Path) -> list[str]:
    """List the names of the public top-level classes and functions of a Python file, as candidates
    for what builds a model; empty if it is no readable Python file."""
    if path.suffix != ".py" or not path.is_file():
        return []
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        body = ast.parse(read_bytes(path, MAX_TEXT_BYTES)).body
        names = [one.name for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
        return [name for name in names if not name.startswith("_")]
    return []


def show_comparison(
    comparison: Comparison,
    schema: str,
    output: OutputOptions,
    html: Path | None = None,
    markdown: Path | None = None,
    print_answer: Callable[[Any, str], None] | None = None,
) -> None:
    """Write the pages that were asked for; print the comparison as JSON, if asked for, or as
    sentences and tables, unless a page goes to standard output.

    Args:
        schema: name of the schema of the JSON.
        print_answer: prints the comparison in a language, instead of sentences and tables.
    """
    from dualml.report.comparison_page import block_table, comparison_page, comparison_table
    from dualml.report.page import terminal

    streamed = check_streams(output.json, html=html, markdown=markdown)
    words = Messages(output.lang)
    if html is not None:
        from dualml.report.page.html import render_html

        write_page(html, render_html(comparison_page(comparison, words)), make_parents=True)
    if markdown is not None:
        from dualml.report.page.markdown import render_markdown

        page = comparison_page(comparison, words, drawn=False)
        write_page(markdown, render_markdown(page), make_parents=True)
    if output.json:
        print_json(comparison.describe(), schema)
    elif not streamed and print_answer is not None:
        print_answer(comparison, output.lang)
    elif not streamed:
        print_text(comparison.paragraph(output.lang))
        for table in (comparison_table(comparison, words), block_table(comparison, words)):
            if table.rows:
                terminal.show(table)
        if patch := getattr(comparison, "patch", None):
            print_patch(patch["diff"] + patch["map"])
