"""``dualml compare``: two traces, or two models."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.cli.options import AsJson, Lang
from dualml.cli.output import print_json
from dualml.errors import UserError
from dualml.files import read_toml
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.parity.models.comparison import Comparison

Option = typer.Option
#: Exit codes of a verdict; what cannot be compared is wrong input.
CODES = {"equal": 0, "different": 3, "not comparable": 2}
#: Columns of the phases that hold numbers.
NUMBERS = ("arrays", "step", "distance", "envelope", "ratio")


def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    inputs: Annotated[Path | None, Option("--inputs")] = None,
    shape: Annotated[list[str] | None, Option("--shape")] = None,
    loss: Annotated[str | None, Option("--loss")] = None,
    optimizer: Annotated[str | None, Option("--optimizer")] = None,
    lr: Annotated[float, Option("--lr")] = 1e-3,
    steps: Annotated[int | None, Option("--steps")] = None,
    evaluation: Annotated[bool, Option("--eval")] = False,
    map_: Annotated[Path | None, Option("--map")] = None,
    margin: Annotated[float, Option("--margin")] = 10.0,
    seed: Annotated[int, Option("--seed")] = 0,
    timeout: Annotated[float, Option("--timeout")] = 300.0,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Compare two recorded traces, or a PyTorch model and its MindSpore port; exit 0 if they are
    equal, 3 if they are different, 2 if they cannot be compared."""
    from dualml.parity.models import run

    asked = names(map_)
    if Path(a).is_dir() and Path(b).is_dir():
        extra = {"--inputs": inputs, "--shape": shape, "--loss": loss, "--optimizer": optimizer,
                 "--steps": steps}  # fmt: skip
        if wrong := [word for word, value in extra.items() if value not in (None, [])]:
            raise UserError(f"{', '.join(wrong)}: of models; {a} and {b} are traces")
        comparison = run.compare_traces(a, b, map=asked, margin=margin)
    elif ":" in a and ":" in b:
        arrays, targets = batch(inputs, shape or [], seed)
        rule = None if optimizer is None else {"name": optimizer, "lr": lr}
        comparison = run.compare(
            a, b, arrays, targets=targets, loss=loss, optimizer=rule, map=asked,
            steps=1 if steps is None else steps, train=not evaluation, seed=seed, margin=margin,
            timeout=timeout,
        )  # fmt: skip
    else:
        one = next(word for word in (a, b) if ":" not in word or Path(word).is_dir())
        raise UserError(
            f"compare takes two trace folders, or two models 'file.py:Name'; {one!r} is "
            + ("a folder, the other is not" if Path(one).is_dir() else "neither")
        )
    if json:
        print_json(comparison.describe(), "compare")
    else:
        show(comparison, lang)
    raise typer.Exit(CODES[comparison.verdict])


def names(path: Path | None) -> dict[str, Any] | None:
    """A map as a TOML file has it."""
    if path is None:
        return None
    flat = flattened(read_toml(path), "")
    for name, partner in flat.items():
        several = isinstance(partner, list) and all(isinstance(word, str) for word in partner)
        if not isinstance(partner, str) and not (several and partner):
            raise UserError(
                f'{path}: {name} must be a name or ["name", "transpose"]; received {partner!r}'
            )
    return flat


def flattened(table: dict[str, Any], above: str) -> dict[str, Any]:
    """``fc.weight = …`` is a table in TOML; here it is a name, with or without its quotes."""
    flat: dict[str, Any] = {}
    for word, value in table.items():
        name = above + word
        flat |= flattened(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def batch(path: Path | None, shapes: list[str], seed: int) -> tuple[list[Any], Any]:
    """Inputs and targets, read or drawn."""
    import numpy as np

    from dualml.arrays import check_memory, read_npz
    from dualml.seeds import generator

    if (path is None) == (not shapes):
        raise UserError("say what the models compute on: either --inputs FILE.npz or --shape 4,8")
    if path is None:
        sizes = [lengths(shape) for shape in shapes]
        check_memory(4 * sum(map(math.prod, sizes)), f"--shape {' '.join(shapes)}")
        return [
            generator(seed, "inputs", i).standard_normal(size, np.float32)
            for i, size in enumerate(sizes)
        ], None
    if path.suffix != ".npz":
        raise UserError(f"{path}: --inputs takes an .npz (np.savez(path, x=…, y=…))")
    arrays = read_npz(path, "not a readable .npz")
    targets = arrays.pop("y", None)
    if not arrays:
        raise UserError(f"{path}: no inputs; it has {'y only' if targets is not None else 'none'}")
    return list(arrays.values()), targets


def lengths(shape: str) -> tuple[int, ...]:
    from dualml.arrays import MOST_DIMENSIONS

    words = shape.split(",")
    right = all(re.fullmatch(r"\s*\d{1,18}\s*", word) and int(word) > 0 for word in words)
    if not right or len(words) > MOST_DIMENSIONS:
        raise UserError(f"--shape takes lengths >= 1, as 4,1,28,28; received {shape!r}")
    return tuple(map(int, words))


def show(comparison: Comparison, lang: str) -> None:
    """The paragraph, and the phases as a table."""
    from dualml.parity.models.words import text

    language: Any = lang
    typer.echo(comparison.paragraph(language))
    rows = [
        [
            text(language, f"phase.{phase}"), str(widest["arrays"]), str(widest["step"]),
            widest["tensor"], f"{widest['distance']:.1e}", f"{widest['envelope']:.1e}",
            f"{widest['ratio']:.3g}",
        ]
        for phase, widest in comparison.phases.items()
    ]  # fmt: skip
    columns = [
        Column(key, text(language, f"column.{key}"), show="number" if key in NUMBERS else "text")
        for key in ("phase", "arrays", "step", "tensor", "distance", "envelope", "ratio")
    ]
    if rows:
        terminal.show(Table("phases", "", columns, rows))
