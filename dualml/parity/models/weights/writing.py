"""Write a side's checkpoint in its own names and layouts, one tensor at a time, and check it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision import round_to_type
from dualml.common.errors import UserError
from dualml.common.files import file_type, is_special, write_json
from dualml.common.json_types import JsonObject
from dualml.common.tensor_files import KINDS, TensorFileWriter
from dualml.parity.models.side_processes import run_side
from dualml.parity.models.sides import LETTERS, PRECISIONS, ResolvedSide
from dualml.parity.models.weights.fitting import SideModel
from dualml.parity.models.weights.loading import carry_weights, read_paired_traces
from dualml.parity.models.weights.mindspore_file import CheckpointWriter
from dualml.parity.models.weights.opening import item_count, list_names
from dualml.parity.models.weights.stored import BFLOAT16

CHECKER = "dualml.parity.models.weights.check_worker"
SUFFIXES = (".safetensors", ".ckpt")
#: Dtype of a side → type of numbers in its checkpoint.
DTYPE_KINDS = {"float32": "F32", "float16": "F16", "bfloat16": BFLOAT16}
#: Bytes of a safetensors header for each tensor, about.
HEADER_BYTES = 200
#: Who wrote a safetensors file, as both frameworks' readers ask.
FORMATS = {"torch": "pt", "mindspore": "ms"}


def check_target(path: Path, overwrite: bool, sources: Sequence[Path]) -> None:
    """Raise `UserError` if a checkpoint cannot be written to a path: it has another suffix than
    `SUFFIXES`, it is one of the files ``sources`` that are read, or `check_free` refuses it."""
    if path.resolve() in [source.resolve() for source in sources]:
        raise UserError(f"--write-weights: {path} is the file that the weights are read from")
    if path.suffix not in SUFFIXES:
        raise UserError(f"--write-weights: {path} must end in .safetensors or .ckpt")
    check_free(path, overwrite, "--write-weights")


def check_free(path: Path, overwrite: bool, option: str) -> None:
    """Raise `UserError` if a file cannot be written: its folder is missing, a folder or special
    file is there, or a file that may not be overwritten.

    Args:
        option: the command-line option to name in the error.
    """
    if not path.parent.is_dir():
        raise UserError(f"{option}: there is no folder {path.parent}")
    if is_special(path) or path.is_dir():
        raise UserError(f"{option}: {path} is {file_type(path)}, not a file")
    if path.exists() and not overwrite:
        raise UserError(f"{option}: {path} exists; --force overwrites it")


def side_kind(job: JsonObject, letter: str) -> str:
    """Return the type of numbers of a side's parameters, named as in safetensors (``F32``).

    Args:
        letter: ``a`` or ``b``.
    """
    return DTYPE_KINDS[job["sides"][letter]["dtype"]]


def round_values(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return floating-point numbers as float32, rounded to the type ``kind`` (``F32``, ``F16`` or
    ``BF16``); other arrays unchanged."""
    if array.dtype.kind != "f":
        return array
    if kind == "F32":
        return array.astype(np.float32)
    precision = PRECISIONS[next(name for name, own in DTYPE_KINDS.items() if own == kind)]
    return round_to_type(array.astype(np.float32), precision).astype(np.float32)


def encode_values(array: NDArray[Any], kind: str) -> tuple[str, NDArray[Any]]:
    """Return (type of numbers in a file, array to write): floating-point numbers are rounded to
    ``kind``, and bfloat16 is given as uint16; raise `UserError` for a type that cannot be
    written."""
    if array.dtype.kind != "f":
        if array.dtype.name not in KINDS:
            raise UserError(f"--write-weights: numbers of type {array.dtype} cannot be written")
        return KINDS[array.dtype.name], array
    values = round_values(array, kind)
    if kind == BFLOAT16:
        bits = np.ascontiguousarray(values).view(np.uint32) >> np.uint32(16)
        return kind, bits.astype(np.uint16)
    return kind, values.astype({"F32": np.float32, "F16": np.float16}[kind])


def write_other_side(
    path: Path,
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
) -> dict[str, Any]:
    """Write the checkpoint of the side that the weights do not come from, after its framework has
    loaded and checked it under a temporary name.

    Args:
        path: the checkpoint; an existing file is replaced.
        folder: folder of a comparison, in which both models were paired.

    Returns:
        A dict with ``file``, its name, ``side``, the label of the side, and ``n``, the number of
            tensors.

    Raises:
        UserError: the side has parameters without a partner, or does not read the format; there is
            no space; or the loaded numbers are others.
    """
    target = "a" if job.get("weights") and job["weights"]["side"] == "b" else "b"
    side = sides[LETTERS.index(target)]
    if path.suffix == ".ckpt" and side.info.name != "mindspore":
        raise UserError(f"--write-weights: {side.label} reads no .ckpt; name a .safetensors file")
    model, arrays = carry_weights(folder, job, target)
    traces = read_paired_traces(folder)
    buffers = traces[LETTERS.index(target)].initial_parameters()
    lost = [
        f"{one.name} {one.shape}"
        for one in model.tensors
        if one.name not in arrays and one.name not in buffers and model.stored.get(one.name)
    ]
    if lost:
        raise UserError(
            f"--write-weights: {len(lost)} parameters of {side.label} have no value, since they "
            f"have no partner: {list_names(lost)}; say it with --map, see --map-only"
        )
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    kind = side_kind(job, target)
    try:
        write_tensors(unfinished, model, arrays, buffers, kind, FORMATS.get(side.info.name, ""))
        write_json(folder / "job.json", {**job, "written": str(unfinished.resolve())})
        run_side(CHECKER, folder, target, side, job["timeout"])
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return {"file": path.name, "side": side.label, "n": len(arrays)}


def write_tensors(
    path: Path,
    model: SideModel,
    arrays: Mapping[str, NDArray[Any]],
    buffers: Mapping[str, NDArray[Any]],
    kind: str,
    origin: str,
) -> None:
    """Write those tensors of a model that its checkpoints have, one at a time, under all their
    names there.

    Args:
        arrays: name → array; names that are missing here are in ``buffers``.
        kind: type in which floating-point numbers are written, named as in safetensors.
        origin: ``format`` in the metadata of a safetensors file; empty for none.

    Raises:
        UserError: there is no space.
    """
    needed = sum(4 * item_count(one.shape) * len(model.stored[one.name]) for one in model.tensors)
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"--write-weights: {path.parent} has {free:,} bytes free; the weights take {needed:,}"
        )
    writer: TensorFileWriter | CheckpointWriter
    append: Callable[[str, str, NDArray[Any]], Any]
    try:
        if path.suffix == ".ckpt":
            writer = CheckpointWriter(path)
            append = writer.append
        else:
            writer = own = TensorFileWriter(
                path, HEADER_BYTES * len(model.tensors), {"format": origin} if origin else {}
            )

            def append(name: str, kind: str, array: NDArray[Any]) -> Any:
                return own.append(name, array, kind)

        try:
            for one in model.tensors:
                names = model.stored[one.name]
                if names:
                    source = arrays if one.name in arrays else buffers
                    written_kind, bits = encode_values(source[one.name], kind)
                    for name in names:
                        append(name, written_kind, bits)
            writer.finish()
        except BaseException:
            writer.discard()
            raise
    except OSError as error:
        raise UserError(f"--write-weights: {path.parent}: {error.strerror or error}") from None
