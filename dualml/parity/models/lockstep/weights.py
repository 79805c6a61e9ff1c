"""Weights that are made one by one: drawn by name, or read from safetensors files."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.errors import UserError
from dualml.common.files import convert_read_errors, open_to_read, read_json
from dualml.common.seeds import derive_seed
from dualml.common.tensor_files import DTYPES, LazyArrays
from dualml.parity.models.partners import Tensor, canonical_name

#: Elements that are drawn at once: they stay in a core's cache.
DRAWN_ELEMENTS = 1 << 16
#: Half of the width of drawn biases, and of drawn scales around 1.
UNIFORM_WIDTH = 0.1
#: Names of parameters and statistics that are drawn around 0 though they have one axis.
AROUND_ZERO = ("bias", "running_mean")
INDEX_ENDING = ".safetensors.index.json"
#: Longest header of a safetensors file that is read.
MAX_HEADER_BYTES = 100_000_000
#: Number of names that an error lists.
SHOWN_NAMES = 3


def draw_weight(seed: int, name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Draw a weight as a float32 array of a shape, from a generator of its own.

    The numbers follow from seed, name and shape alone, so that a weight can be made at any time, in
    any order and in any process. They are uniform: with variance 1 / (product of all axes but the
    first) for a matrix or a kernel, in ±0.1 for a bias, and in 1 ± 0.1 for other vectors, which
    are scales.

    Example:
        >>> bool(abs(draw_weight(0, "norm.weight", (4,)) - 1).max() < 0.1)
        True
    """
    centre, spread = 0.0, UNIFORM_WIDTH
    if len(shape) > 1:
        spread = math.sqrt(3 / max(1, math.prod(shape[1:])))
    elif canonical_name(name).rpartition(".")[2] not in AROUND_ZERO:
        centre = 1.0
    bits = np.random.SFC64(derive_seed(seed, "lockstep weight", name))
    array = np.empty(math.prod(shape), np.float32)
    scale = np.float32(spread / 2**15)
    for at in range(0, array.size, DRAWN_ELEMENTS):
        part = array[at : at + DRAWN_ELEMENTS]
        part[:] = bits.random_raw(-(-part.size // 4)).view(np.int16)[: part.size]
        part += np.float32(0.5)  # as many positive numbers as negative ones
        part *= scale
        if centre:
            part += np.float32(centre)
    return array.reshape(tuple(shape))


def draw_weights(seed: int, tensors: Sequence[Tensor]) -> LazyArrays:
    """Return name → array of these tensors, each drawn anew whenever it is looked up, see
    `draw_weight`."""
    drawn = LazyArrays()
    for one in tensors:
        drawn.add(one.name, one.shape, partial(draw_weight, seed, one.name, one.shape))
    return drawn


def neutral_weight(name: str, shape: Sequence[int]) -> NDArray[np.float32]:
    """Return the initial value of a parameter that only one side has, as float32: zeros for a bias,
    ones for a scale, and for a matrix drawn numbers, see `draw_weight`."""
    if len(shape) > 1:
        return draw_weight(0, name, shape)
    value = float(canonical_name(name).rpartition(".")[2] not in AROUND_ZERO)
    return np.full(tuple(shape), value, np.float32)


def open_weights(path: Path, tensors: Sequence[Tensor]) -> LazyArrays:
    """Return tensors of a safetensors file, or of a folder with several and their index, as arrays
    that are read from the mapped files when they are looked up; floating-point numbers as float32.

    Raises:
        UserError: a file is missing or damaged, lacks a trained tensor, or has a tensor of another
            shape; the message names them. A tensor that is not trained may be missing.
    """
    known: dict[str, tuple[tuple[int, ...], Any]] = {}
    for file in list_shards(path):
        known |= map_tensors(file)
    missing = [one.name for one in tensors if one.trained and one.name not in known]
    if missing:
        shown, there = (", ".join(names[:SHOWN_NAMES]) for names in (missing, list(known)))
        raise UserError(
            f"{path}: {len(missing)} of {len(tensors)} tensors of the first model are missing: "
            f"{shown}; the files must have its names, and have {there}, …"
        )
    arrays = LazyArrays()
    for one in tensors:
        if one.name in known:
            shape, read = known[one.name]
            if shape != one.shape:
                raise UserError(f"{path}: {one.name} has shape {shape}; the model has {one.shape}")
            arrays.add(one.name, shape, read)
    return arrays


def list_shards(path: Path) -> list[Path]:
    """Return the safetensors files at a path: the file itself, those that an index file names, or
    those of a folder (of its first index, if it has one).

    Raises:
        UserError: there is none, or the index is damaged or names files that are missing.
    """
    if path.is_dir():
        found = sorted(path.glob(f"*{INDEX_ENDING}"))
        if not found:
            files = sorted(path.glob("*.safetensors"))
            if not files:
                raise UserError(f"{path}: no *.safetensors and no *{INDEX_ENDING} in this folder")
            return files
        path = found[0]
    if not path.is_file():
        raise UserError(f"{path}: there is no such file or folder of weights")
    if path.suffix == ".safetensors":
        return [path]
    if not path.name.endswith(INDEX_ENDING):
        raise UserError(f"{path}: weights are read from .safetensors files or their index alone")
    with convert_read_errors(f"{path}: not a readable index"):
        named = dict.fromkeys(str(file) for file in read_json(path)["weight_map"].values())
        if any(Path(file).name != file for file in named):
            raise ValueError("it names files of another folder")
    missing = [file for file in named if not path.with_name(file).is_file()]
    if missing:
        raise UserError(
            f"{path}: {len(missing)} of {len(named)} files are missing: "
            f"{', '.join(missing[:SHOWN_NAMES])}; download them into this folder"
        )
    return [path.with_name(file) for file in named]


def map_tensors(path: Path) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return name → (shape, function that reads it) of the tensors of a safetensors file.

    Raises:
        UserError: the file is damaged, or has a type of numbers that cannot be read.
    """
    found = {}
    with (
        convert_read_errors(f"{path}: not a readable safetensors file"),
        open_to_read(path) as file,
    ):
        size = path.stat().st_size
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(MAX_HEADER_BYTES, size):
            raise ValueError("its header is longer than the file")
        header = json.loads(file.read(length))
        for name, row in header.items():
            if name == "__metadata__":
                continue
            kind, shape = str(row["dtype"]), tuple(int(n) for n in row["shape"])
            begin, end = (8 + length + int(n) for n in row["data_offsets"])
            stored = np.dtype("uint16" if kind == "BF16" else DTYPES.get(kind, "V1"))
            if stored.kind == "V":
                raise ValueError(f"{name} has the type {kind}, which cannot be read")
            if end > size or end - begin != math.prod(shape) * stored.itemsize:
                raise ValueError(f"{name} does not end where the file says")
            found[name] = shape, partial(read_mapped, path, begin, stored, shape, kind)
    return found


def read_mapped(
    path: Path, begin: int, stored: np.dtype[Any], shape: tuple[int, ...], kind: str
) -> NDArray[Any]:
    """Read a tensor from a file through a memory map: floating-point numbers of up to 64 bits as a
    new float32 array, others in their stored type.

    Args:
        begin: offset of the tensor in the file, in bytes.
        stored: dtype in which it is read; uint16 for bfloat16.
        kind: type of numbers, named as in safetensors (``BF16``).
    """
    if not math.prod(shape):
        return np.zeros(shape, np.float32)
    mapped: NDArray[Any] = np.memmap(path, stored, "r", begin, (math.prod(shape),))
    if kind == "BF16":
        bits = mapped.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32).reshape(shape)
    return np.array(mapped, np.float32 if stored.kind == "f" else stored).reshape(shape)
