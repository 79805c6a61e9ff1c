"""``dualml compare``: two runs, two traces, two dumps of other tools, or two models."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes, read_toml
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison

Option = typer.Option
#: Verdict → exit code; what cannot be compared counts as invalid input.
CODES = {"equal": 0, "statistically equal": 0, "different": 3, "not comparable": 2}
#: Pattern in the errors of frameworks that expect integers and receive floats.
INTEGER_ERROR = r"\b(Long|Int|int64|int32|integer|indices)\b"
#: Columns of the table of phases that contain numbers.
NUMBERS = ("arrays", "step", "distance", "envelope", "ratio")


def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    arm: list[str] | None = None,
    pair: Annotated[list[str] | None, Option(metavar="A=B")] = None,
    backend: Annotated[list[str] | None, Option("--backend", "-b")] = None,
    metric: list[str] | None = None,
    slower: Annotated[float | None, Option(metavar="TIMES")] = None,
    more_memory: Annotated[float | None, Option(metavar="TIMES")] = None,
    html: Annotated[Path | None, Option(metavar="FILE")] = None,
    markdown: Annotated[Path | None, Option(metavar="FILE")] = None,
    inputs: Annotated[Path | None, Option("--inputs")] = None,
    shape: Annotated[list[str] | None, Option("--shape")] = None,
    loss: Annotated[str | None, Option("--loss")] = None,
    optimizer: Annotated[str | None, Option("--optimizer")] = None,
    lr: Annotated[float, Option("--lr")] = 1e-3,
    steps: Annotated[int | None, Option("--steps")] = None,
    evaluation: Annotated[bool, Option("--eval")] = False,
    map_: Annotated[Path | None, Option("--map")] = None,
    margin: Annotated[float, Option("--margin")] = 10.0,
    seed: list[str] | None = None,
    timeout: Annotated[float, Option("--timeout")] = 300.0,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Compare two runs, two traces, two dumps of other tools, or a PyTorch model and its MindSpore
    port.

    Exits with 0 if they are equal, 3 if they are different, 2 if they cannot be compared.
    """
    from dualml.experiment.store.run_operand import are_run_operands
    from dualml.interface.cli.run import parse_seeds

    seeds = parse_seeds(seed or [])
    of_runs = {
        "--arm": arm,
        "--pair": pair,
        "--backend": backend,
        "--metric": metric,
        "--slower": slower,
        "--more-memory": more_memory,
        "--html": html,
        "--markdown": markdown,
    }
    of_models = {
        "--inputs": inputs,
        "--shape": shape,
        "--loss": loss,
        "--optimizer": optimizer,
        "--steps": steps,
        "--eval": evaluation or None,
    }
    folders = Path(a).is_dir() and Path(b).is_dir()
    if folders and are_run_operands(Path(a), Path(b)):
        from dualml.interface.cli.compare_runs import compare_folders

        refuse_options({**of_models, "--map": map_}, "models", a, b, "runs")
        against = compare_folders(
            a,
            b,
            arms=arm or None,
            pair=pair or [],
            backend=backend or [],
            seeds=seeds or None,
            metrics=metric or None,
            margin=margin,
            slower=slower,
            more_memory=more_memory,
            html=html,
            markdown=markdown,
            json=json,
            lang=lang,
        )
        raise typer.Exit(CODES["different"] if against.failures else CODES[against.verdict])
    refuse_options(of_runs, "runs", a, b, "none")
    from dualml.parity.models import run
    from dualml.parity.models.comparison import Note

    asked = read_name_map(map_)
    if folders:
        refuse_options({**of_models, "--seed": seed}, "models", a, b, "traces")
        comparison = run.compare_traces(a, b, map=asked, margin=margin)
    elif ":" in a and ":" in b:
        if len(seeds) > 1:
            raise UserError(f"models are compared with one --seed; received {seeds}")
        drawn = seeds[0] if seeds else 0
        arrays, targets = load_batch(inputs, shape or [], drawn)
        rule = None if optimizer is None else {"name": optimizer, "lr": lr}
        comparison = run.compare(
            a,
            b,
            arrays,
            targets=targets,
            loss=loss,
            optimizer=rule,
            map=asked,
            steps=1 if steps is None else steps,
            train=not evaluation,
            seed=drawn,
            margin=margin,
            timeout=timeout,
        )
        errors = [note.values["text"] for note in comparison.notes if note.key == "raised"]
        if (
            shape
            and len(errors) == len(comparison.sides)
            and re.search(INTEGER_ERROR, " ".join(errors))
        ):
            comparison = replace(comparison, notes=(*comparison.notes, Note("drawn")))
    else:
        one = next(word for word in (a, b) if ":" not in word or Path(word).is_dir())
        if there := model_builders(Path(one)):
            raise UserError(
                f"{one}: say what builds the model, as {one}:{there[-1]}; there are "
                f"{', '.join(there)}"
            )
        raise UserError(
            f"compare takes two folders (of runs, traces or dumps), or two models 'file.py:Name'; "
            f"{one!r} is " + ("a folder, the other is not" if Path(one).is_dir() else "neither")
        )
    if json:
        print_json(comparison.describe(), "compare")
    else:
        show_comparison(comparison, lang)
    raise typer.Exit(CODES[comparison.verdict])


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
    """Read a map of parameter names from a TOML file; None if there is no file."""
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
    """Flatten nested TOML tables into dotted names: ``fc.weight = …`` is a name here, not a
    table."""
    flat: dict[str, Any] = {}
    for word, value in table.items():
        name = above + word
        flat |= flatten_table(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def model_builders(path: Path) -> list[str]:
    """List the public classes and functions of a Python file."""
    if path.suffix != ".py" or not path.is_file():
        return []
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        body = ast.parse(read_bytes(path, MAX_TEXT_BYTES)).body
        names = [one.name for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef)]
        return [name for name in names if not name.startswith("_")]
    return []


def load_batch(path: Path | None, shapes: list[str], seed: int) -> tuple[list[Any], Any]:
    """Return inputs and targets, read from a file or drawn at random."""
    import numpy as np

    from dualml.common.arrays import check_memory, read_npz
    from dualml.common.seeds import make_generator

    if (path is None) == (not shapes):
        raise UserError("say what the models compute on: either --inputs FILE.npz or --shape 4,8")
    if path is None:
        sizes = [parse_shape(shape) for shape in shapes]
        check_memory(4 * sum(map(math.prod, sizes)), f"--shape {' '.join(shapes)}")
        return [
            make_generator(seed, "inputs", i).standard_normal(size, np.float32)
            for i, size in enumerate(sizes)
        ], None
    if not path.exists():
        raise UserError(f"--inputs: there is no file {path}")
    if path.suffix != ".npz":
        raise UserError(f"{path}: --inputs takes an .npz (np.savez(path, x=…, y=…))")
    arrays = read_npz(path, "not a readable .npz")
    targets = arrays.pop("y", None)
    if not arrays:
        raise UserError(f"{path}: no inputs; it has {'y only' if targets is not None else 'none'}")
    return list(arrays.values()), targets


def parse_shape(shape: str) -> tuple[int, ...]:
    """Parse a shape such as ``4,1,28,28``."""
    from dualml.common.arrays import MAX_DIMENSIONS

    words = shape.split(",")
    right = all(re.fullmatch(r"\s*\d{1,18}\s*", word) and int(word) > 0 for word in words)
    if not right or len(words) > MAX_DIMENSIONS:
        raise UserError(f"--shape takes lengths >= 1, as 4,1,28,28; received {shape!r}")
    return tuple(map(int, words))


def show_comparison(comparison: ModelComparison, lang: str) -> None:
    """Print the verdict paragraph, and the phases as a table."""
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
