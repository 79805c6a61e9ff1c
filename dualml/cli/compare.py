"""``dualml compare``: two traces, or two models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.cli.options import AsJson, Lang

if TYPE_CHECKING:
    from dualml.parity.models.comparison import Comparison

Option = typer.Option
#: Exit codes of a verdict; what cannot be compared is wrong input.
CODES = {"equal": 0, "different": 3, "not comparable": 2}


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
    from dualml.cli.output import print_json
    from dualml.errors import UserError
    from dualml.parity.models import run

    asked = names(map_)
    if Path(a).is_dir() and Path(b).is_dir():
        extra = {"--inputs": inputs, "--shape": shape, "--loss": loss, "--optimizer": optimizer,
                 "--steps": steps}  # fmt: skip
        if wrong := [word for word, value in extra.items() if value]:
            raise UserError(f"{', '.join(wrong)}: of models; {a} and {b} are traces")
        found = run.compare_traces(a, b, map=asked, margin=margin)
    elif ":" in a and ":" in b:
        arrays, targets = batch(inputs, shape or [], seed)
        rule = None if optimizer is None else {"name": optimizer, "lr": lr}
        found = run.compare(
            a, b, arrays, targets=targets, loss=loss, optimizer=rule, steps=steps or 1, map=asked,
            train=not evaluation, seed=seed, margin=margin, timeout=timeout,
        )  # fmt: skip
    else:
        one = next(word for word in (a, b) if ":" not in word or Path(word).is_dir())
        raise UserError(
            f"compare takes two trace folders, or two models 'file.py:Name'; {one!r} is "
            + ("a folder, the other is not" if Path(one).is_dir() else "neither")
        )
    if json:
        print_json(found.describe())
    else:
        show(found, lang)
    raise typer.Exit(CODES[found.verdict])


def names(path: Path | None) -> dict[str, Any] | None:
    """A map as a TOML file has it."""
    import tomllib

    from dualml.errors import UserError
    from dualml.files import readable

    if path is None:
        return None
    with readable(f"{path}: not a readable map"):
        told = tomllib.loads(path.read_text("utf-8"))
        flat = flattened(told, "")
    for name, partner in flat.items():
        several = isinstance(partner, list) and all(isinstance(word, str) for word in partner)
        if not isinstance(partner, str) and not (several and partner):
            raise UserError(
                f'{path}: {name} must be a name or ["name", "transpose"]; received {partner!r}'
            )
    return flat


def flattened(told: dict[str, Any], above: str) -> dict[str, Any]:
    """``fc.weight = …`` is a table in TOML; here it is a name, with or without its quotes."""
    found: dict[str, Any] = {}
    for word, value in told.items():
        if isinstance(value, dict):
            found |= flattened(value, f"{above}{word}.")
        else:
            found[above + word] = value
    return found


def batch(path: Path | None, shapes: list[str], seed: int) -> tuple[list[Any], Any]:
    """Inputs and targets, read or drawn."""
    import numpy as np

    from dualml.errors import UserError
    from dualml.files import readable
    from dualml.seeds import generator

    if (path is None) == (not shapes):
        raise UserError("say what the models compute on: either --inputs FILE.npz or --shape 4,8")
    if path is None:
        return [
            generator(seed, "inputs", i).standard_normal(lengths(s), np.float32)
            for i, s in enumerate(shapes)
        ], None
    if path.suffix != ".npz":
        raise UserError(f"{path}: --inputs takes an .npz (np.savez(path, x=…, y=…))")
    with readable(f"{path}: not a readable .npz"), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    targets = arrays.pop("y", None)
    if not arrays:
        raise UserError(f"{path}: no inputs; it has {'y only' if targets is not None else 'none'}")
    return list(arrays.values()), targets


def lengths(shape: str) -> tuple[int, ...]:
    from dualml.errors import UserError

    try:
        found = tuple(int(word) for word in shape.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise UserError(f"--shape takes lengths >= 1, as 4,1,28,28; received {shape!r}")
    return found


def show(found: Comparison, lang: str) -> None:
    """The paragraph, and the phases as a table."""
    from rich.console import Console
    from rich.table import Table

    from dualml.parity.models.words import text

    language: Any = lang
    console = Console(highlight=False)
    console.print(found.paragraph(language), markup=False, soft_wrap=True)
    if not found.phases:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("phase", "arrays", "step", "tensor", "distance", "envelope", "ratio"):
        left = column in ("phase", "tensor")
        table.add_column(text(language, f"column.{column}"), justify="left" if left else "right",
                         overflow="fold")  # fmt: skip
    for phase, told in found.phases.items():
        table.add_row(
            text(language, f"phase.{phase}"), str(told["arrays"]), str(told["step"]),
            told["tensor"].replace("[", r"\["), f"{told['distance']:.1e}",
            f"{told['envelope']:.1e}", f"{told['ratio']:.3g}",
        )  # fmt: skip
    console.print(table)
