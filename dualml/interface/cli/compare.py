"""``dualml compare``: two runs, two traces, two dumps of other tools, or two models."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes, read_toml
from dualml.interface.cli.compare_models import (
    MatchingOptions,
    ModelComparisonOptions,
    compare_models,
)
from dualml.interface.cli.compare_runs import RunComparisonOptions, compare_folders
from dualml.interface.cli.option_groups import with_option_groups
from dualml.interface.cli.options import OutputOptions
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison

#: Verdict → exit code; what cannot be compared counts as invalid input.
CODES = {"equal": 0, "statistically equal": 0, "different": 3, "not comparable": 2}
#: Columns of the table of phases that contain numbers.
NUMBERS = ("arrays", "step", "distance", "envelope", "ratio")


@with_option_groups
def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    *,
    runs: RunComparisonOptions,
    models: ModelComparisonOptions,
    matching: MatchingOptions,
    output: OutputOptions,
) -> None:
    """Compare two runs, two traces, two dumps of other tools, or a PyTorch model and its MindSpore
    port.

    Exits with 0 if they are equal or statistically equal, 3 if they are different or a limit on
    time or memory is exceeded, 2 if they cannot be compared.
    """
    from dualml.experiment.store.run_operand import are_run_operands
    from dualml.interface.cli.run import parse_seeds

    seeds = parse_seeds(matching.seed or [])
    folders = Path(a).is_dir() and Path(b).is_dir()
    if folders and are_run_operands(Path(a), Path(b)):
        refuse_options({**models.option_values(), "--map": matching.map_}, "models", a, b, "runs")
        against = compare_folders(a, b, runs, output, seeds, matching.margin)
        raise typer.Exit(CODES["different"] if against.failures else CODES[against.verdict])
    refuse_options(runs.option_values(), "runs", a, b, "none")
    names = read_name_map(matching.map_)
    if folders:
        from dualml.parity.models.run import compare_traces

        refuse_options(
            {**models.option_values(), "--seed": matching.seed}, "models", a, b, "traces"
        )
        comparison = compare_traces(a, b, map=names, margin=matching.margin)
    elif ":" in a and ":" in b:
        if len(seeds) > 1:
            raise UserError(f"models are compared with one --seed; received {seeds}")
        comparison = compare_models(a, b, models, matching, names, seeds[0] if seeds else 0)
    else:
        raise operand_error(a, b)
    if output.json:
        print_json(comparison.describe(), "compare")
    else:
        show_comparison(comparison, output.lang)
    raise typer.Exit(CODES[comparison.verdict])


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
    options: dict[str, Any], option_kind: str, a: str, b: str, subject_kind: str
) -> None:
    """Raise `UserError` if an option was given that does not apply to the kind of A and B.

    Args:
        options: option → value; None or an empty list if it was not given.
        option_kind: the kind of comparison that these options apply to.
        a, b: the two operands.
        subject_kind: the kind of the two operands.
    """
    if wrong := [word for word, value in options.items() if value not in (None, [])]:
        raise UserError(f"{', '.join(wrong)}: of {option_kind}; {a} and {b} are {subject_kind}")


def read_name_map(path: Path | None) -> dict[str, Any] | None:
    """Read a map of parameter names from a TOML file: dotted name → name, or list of name and
    operation. None if ``path`` is None; raise `UserError` for another value."""
    if path is None:
        return None
    flat = flatten_table(read_toml(path), "")
    for name, partner in flat.items():
        several = isinstance(partner, list) and all(isinstance(word, str) for word in partner)
        if not isinstance(partner, str) and not (several and partner):
            raise UserError(
                f'{path}: {name} must be a name or ["name", "transpose"]; received {partner!r}'
            )
    return flat


def flatten_table(table: dict[str, Any], above: str) -> dict[str, Any]:
    """Flatten nested TOML tables into dotted names: ``fc.weight = …`` is a name here, not a table.
    ``above`` is put before every name."""
    flat: dict[str, Any] = {}
    for word, value in table.items():
        name = above + word
        flat |= flatten_table(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


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


def show_comparison(comparison: ModelComparison, lang: str) -> None:
    """Print the verdict paragraph, and the phases as a table if there are any."""
    from dualml.parity.models.messages import format_message

    language: Any = lang
    print_text(comparison.paragraph(language))
    rows = [
        [
            format_message(language, f"phase.{phase}"),
            str(widest["arrays"]),
            str(widest["step"]),
            widest["tensor"],
            f"{widest['distance']:.1e}",
            f"{widest['envelope']:.1e}",
            f"{widest['ratio']:.3g}",
        ]
        for phase, widest in comparison.phases.items()
    ]
    columns = [
        Column(
            key,
            format_message(language, f"column.{key}"),
            show="number" if key in NUMBERS else "text",
        )
        for key in ("phase", "arrays", "step", "tensor", "distance", "envelope", "ratio")
    ]
    if rows:
        terminal.show(Table("phases", "", columns, rows))
