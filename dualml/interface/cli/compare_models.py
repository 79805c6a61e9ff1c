"""``dualml compare`` for two models: a port, a reimplementation, or one model in two modes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualml.common.errors import UserError

if TYPE_CHECKING:
    from dualml.parity.models.comparison import ModelComparison
    from dualml.parity.models.sides import Side
    from dualml.parity.models.weights.map_only import ModelMap
    from dualml.parity.models.weights.options import WeightOptions

Option = typer.Option
#: Pattern in the errors of frameworks that expect integers and receive floats.
INTEGER_ERROR = r"\b(Long|Int|int64|int32|integer|indices)\b"


@dataclass(frozen=True)
class WeightFileOptions:
    """Options of a comparison of two models about files: weights that are read or written, and the
    map of both models' parameters."""

    weights: Annotated[Path | None, Option("--weights", metavar="PATH")] = None
    weights_prefix: Annotated[str, Option("--weights-prefix", metavar="OLD=NEW")] = ""
    weights_side: Annotated[str, Option("--weights-side", metavar="SIDE")] = ""
    map_only: Annotated[bool, Option("--map-only")] = False
    write_map: Annotated[Path | None, Option("--write-map", metavar="FILE")] = None
    write_weights: Annotated[Path | None, Option("--write-weights", metavar="FILE")] = None
    force: Annotated[bool, Option("--force")] = False

    def weight_options(self) -> WeightOptions:
        """Return the options about files, all but ``--map-only``, in the form that a comparison
        takes."""
        from dualml.parity.models.weights.options import WeightOptions

        return WeightOptions(
            self.weights,
            self.weights_prefix,
            self.weights_side,
            self.write_map,
            self.write_weights,
            self.force,
        )


@dataclass(frozen=True)
class ModelComparisonOptions(WeightFileOptions):
    """Options of a comparison of two models."""

    inputs: Annotated[Path | None, Option("--inputs")] = None
    shape: Annotated[list[str] | None, Option("--shape")] = None
    loss: Annotated[str | None, Option("--loss")] = None
    optimizer: Annotated[str | None, Option("--optimizer")] = None
    lr: Annotated[float, Option("--lr")] = 1e-3
    steps: Annotated[int | None, Option("--steps")] = None
    evaluation: Annotated[bool, Option("--eval")] = False
    lockstep: Annotated[bool, Option("--lockstep")] = False
    blocks: Annotated[str | None, Option("--blocks", metavar="NAME,NAME…")] = None
    patch: Annotated[bool, Option("--patch")] = False

    def option_values(self) -> dict[str, Any]:
        """Return option → value, None if it was not given, without ``--lr``, which changes nothing
        on its own."""
        values = {**vars(self), "eval": self.evaluation}
        return {
            f"--{name.replace('_', '-')}": None if value is False or value == "" else value
            for name, value in values.items()
            if name not in ("lr", "evaluation")
        }

    def block_names(self) -> list[str] | None:
        """Return the names in ``--blocks``; None if it was not given."""
        if self.blocks is None:
            return None
        return [name.strip() for name in self.blocks.split(",") if name.strip()]


@dataclass(frozen=True)
class SideOptions:
    """Options of both sides of a comparison of models: framework, mode, device, dtype and
    environment."""

    a_framework: Annotated[str | None, Option("--a-framework", metavar="NAME")] = None
    b_framework: Annotated[str | None, Option("--b-framework", metavar="NAME")] = None
    a_mode: Annotated[str | None, Option("--a-mode", metavar="MODE")] = None
    b_mode: Annotated[str | None, Option("--b-mode", metavar="MODE")] = None
    a_device: Annotated[str | None, Option("--a-device", metavar="DEVICE")] = None
    b_device: Annotated[str | None, Option("--b-device", metavar="DEVICE")] = None
    a_dtype: Annotated[str | None, Option("--a-dtype", metavar="DTYPE")] = None
    b_dtype: Annotated[str | None, Option("--b-dtype", metavar="DTYPE")] = None
    a_python: Annotated[Path | None, Option("--a-python", metavar="PYTHON")] = None
    b_python: Annotated[Path | None, Option("--b-python", metavar="PYTHON")] = None

    def option_values(self) -> dict[str, Any]:
        """Return option → value, None if it was not given."""
        return {f"--{name.replace('_', '-')}": value for name, value in vars(self).items()}

    def sides(self) -> tuple[Side, Side]:
        """Return the settings of both sides, with the defaults of what was not given."""
        from dualml.parity.models.sides import Side

        first, second = (
            {
                name.removeprefix(f"{letter}_"): value
                for name, value in vars(self).items()
                if name.startswith(f"{letter}_") and value is not None
            }
            for letter in "ab"
        )
        return Side(**first), Side(**second)


@dataclass(frozen=True)
class ComparisonOptions:
    """Options of every comparison: parameter names, tolerance, seeds, time limit, and how much of
    the answer is printed."""

    map_: Annotated[Path | None, Option("--map")] = None
    margin: Annotated[float, Option("--margin")] = 10.0
    seed: list[str] | None = None
    timeout: Annotated[float, Option("--timeout")] = 300.0
    verbose: Annotated[bool, Option("--verbose")] = False


def compare_models(
    a: str,
    b: str,
    models: ModelComparisonOptions,
    sides: SideOptions,
    matching: ComparisonOptions,
    seed: int,
) -> ModelComparison:
    """Compare two models, each named by ``file.py:Name`` or ``module:Name``, on the inputs of the
    options; each runs in a process of its own.

    Args:
        a, b: the models.
        models: options about inputs, training and weights.
        sides: framework, mode, device, dtype and environment of each model.
        matching: map of parameter names, margin and time limit.
        seed: of the training, and of inputs that are drawn.

    Raises:
        UserError: the options are invalid, or a file cannot be read.
    """
    from dualml.experiment.comparison import Note
    from dualml.parity.models import run

    arrays, targets = load_batch(models.inputs, models.shape or [], seed)
    rule = None if models.optimizer is None else {"name": models.optimizer, "lr": models.lr}
    comparison = run.compare(
        a,
        b,
        arrays,
        targets=targets,
        loss=models.loss,
        optimizer=rule,
        map=read_name_map(matching.map_),
        steps=1 if models.steps is None else models.steps,
        train=not models.evaluation,
        seed=seed,
        margin=matching.margin,
        timeout=matching.timeout,
        sides=sides.sides(),
        weights=models.weight_options(),
        lockstep=models.lockstep,
        blocks=models.block_names(),
        patch=models.patch,
    )
    errors = [note.values["text"] for note in comparison.notes if note.key == "raised"]
    raised = len(errors) == len(comparison.sides)
    if models.shape and raised and re.search(INTEGER_ERROR, " ".join(errors)):
        comparison = replace(comparison, notes=(*comparison.notes, Note("drawn")))
    return comparison


def pair_models(
    a: str,
    b: str,
    models: ModelComparisonOptions,
    sides: SideOptions,
    matching: ComparisonOptions,
    seed: int,
) -> ModelMap:
    """Pair the parameters of two models, each named by ``file.py:Name`` or ``module:Name``, without
    comparing values. Inputs, for parameters that names alone do not pair, may be left out."""
    from dualml.parity.models.weights import map_only

    inputs = None
    if models.inputs is not None or models.shape:
        inputs, _ = load_batch(models.inputs, models.shape or [], seed)
    return map_only.pair_models(
        a,
        b,
        None if inputs is None else tuple(inputs),
        map=read_name_map(matching.map_),
        timeout=matching.timeout,
        sides=sides.sides(),
        weights=models.weight_options(),
    )


def read_name_map(path: Path | None) -> dict[str, Any] | None:
    """Read a map of parameter names from a TOML or JSON file, see
    `dualml.parity.models.weights.map_file.read_map_file`; None if ``path`` is None."""
    if path is None:
        return None
    from dualml.parity.models.weights.map_file import read_map_file

    return read_map_file(path)


def load_batch(path: Path | None, shapes: list[str], seed: int) -> tuple[list[Any], Any]:
    """Return inputs and targets: the arrays of an ``.npz`` file, of which ``y`` is the targets, or
    standard normal float32 inputs of these shapes and no targets (None). Raise `UserError` unless
    exactly one of file and shapes is given, and for inputs that are missing, unreadable or too
    large."""
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
    """Parse a shape such as ``4,1,28,28``, the batch included; raise `UserError` for anything but
    whole numbers from 1, or too many of them."""
    from dualml.common.arrays import MAX_DIMENSIONS

    words = shape.split(",")
    right = all(re.fullmatch(r"\s*\d{1,18}\s*", word) and int(word) > 0 for word in words)
    if not right or len(words) > MAX_DIMENSIONS:
        raise UserError(f"--shape takes lengths >= 1, as 4,1,28,28; received {shape!r}")
    return tuple(map(int, words))
