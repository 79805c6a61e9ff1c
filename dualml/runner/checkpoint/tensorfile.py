"""A safetensors file that is read in parts, without a copy of it in memory.

The format: eight bytes with the length of the header, little-endian; the header, a JSON table
``name → {dtype, shape, data_offsets}``; the tensors' bytes in C order, one after the other. The
files of a run are read with the library (`dualml.common.arrays.open_tensors`). Checkpoints of other
programs are not: its NumPy reader fails for bfloat16 and 8-bit floats, and of a truncated file it
does not say which tensors are damaged. Its writer needs all tensors at once (see `writing`).

Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.arrays import MAX_DIMENSIONS
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import open_to_read
from dualml.common.parse import from_json
from dualml.runner.checkpoint.kinds import STORAGE_DTYPES, Array

#: Largest header in bytes, which is the safetensors library's limit, too.
MAX_HEADER_BYTES = 100_000_000
METADATA = "__metadata__"
#: Largest number of elements, so that 64 bits can count the bytes.
MAX_ELEMENTS = 2**59
#: Number of names that an error lists.
MAX_LISTED_NAMES = 5


@dataclass(frozen=True)
class TensorEntry:
    """Header entry of a tensor: its element type (``F32``), its shape, and its bytes ``begin`` …
    ``end`` − 1 after the header."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class SafetensorsFile:
    """A file whose header is valid and which has all the bytes that its header describes.

    Attributes:
        path: of the file.
        start: bytes before the first tensor.
        entries: tensor → its header entry, in the order of the file.
        metadata: texts by key.
        stamp: identifies the file (device, inode, mtime in ns, size), to notice a replacement.
    """

    path: Path
    start: int
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, str] = field(default_factory=dict)
    stamp: tuple[int, ...] = ()

    def map_bytes(self) -> Array:
        """Map the file's bytes into memory, read-only, for as long as the result is used: a
        checkpoint may have more files than a process may keep open. `UserError` if the file was
        replaced."""
        try:
            with open_to_read(self.path) as file:
                if file_stamp(os.fstat(file.fileno())) != self.stamp:
                    raise replaced_error(self.path)
                return np.memmap(file, np.uint8, "r")
        except FileNotFoundError:
            raise replaced_error(self.path) from None

    def array(self, name: str) -> Array:
        """Return the tensor's bits, mapped read-only: parts that are not accessed are not read.
        `UserError` if the file was replaced."""
        entry = self.entries[name]
        dtype = STORAGE_DTYPES[entry.kind]
        if entry.begin == entry.end:
            return np.empty(entry.shape, dtype)
        raw = self.map_bytes()[self.start + entry.begin : self.start + entry.end]
        return raw.view(dtype).reshape(entry.shape)


def open_tensor_file(path: Path) -> SafetensorsFile:
    """Read and check the header of a file.

    Raises:
        UserError: the file is not safetensors, was truncated (the text names the damaged tensors),
            or has an unsupported element type.
    """
    try:
        begin = open_to_read(path)
    except FileNotFoundError:
        raise replaced_error(path) from None
    with begin as file:
        stamp = file_stamp(os.fstat(file.fileno()))
        size = stamp[-1]
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise UserError(
                f"{path}: not a safetensors file, or one that was cut short: it has {size:,} bytes "
                f"and says that its header has {length:,}"
            )
        text = file.read(length)
    try:
        table = from_json(text)
        if not isinstance(table, dict):
            raise ValueError("its header is no table")
        metadata = table.pop(METADATA, None) or {}
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise ValueError(f"{METADATA} is no table of texts")
        entries = {name: parse_entry(name, value) for name, value in table.items()}
        entries = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
        check_contiguous(entries)
    except ValueError as error:
        raise UserError(f"{path}: not a sound safetensors file: {error}") from None
    file_ = SafetensorsFile(path, 8 + length, entries, metadata, stamp)
    check_length(file_, size)
    return file_


def file_stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, mtime in ns and size of a file."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def replaced_error(path: Path) -> UserError:
    """Return the error for a file that disappeared or changed while its checkpoint was read."""
    return UserError(f"{path}: the checkpoint was replaced while it was read; open it again")


def parse_entry(name: str, value: Any) -> TensorEntry:
    """Parse the header entry ``value`` of the tensor ``name``.

    Raises:
        ValueError: it is malformed.
    """
    shown = escape_unprintable(name)[:100]
    if not isinstance(value, dict):
        raise ValueError(f"{shown} is no table")
    kind, shape, place = (value.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(kind, str):
        raise ValueError(f"{shown} has no type")
    for numbers in (shape, place):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"{shown} has no shape or no place in the file")
    assert isinstance(shape, list)
    assert isinstance(place, list)
    nbytes = tensor_nbytes(shown, kind, shape)
    if len(place) != 2 or place[1] - place[0] != nbytes:
        raise ValueError(f"{shown} of {nbytes:,} bytes by its shape stands at {place[:3]}")
    return TensorEntry(kind, tuple(shape), *place)


def tensor_nbytes(name: str, kind: str, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor with element type ``kind`` and this shape; ``name`` is for
    messages.

    Raises:
        ValueError: the element type is unsupported, or no array can have the shape.
    """
    if kind not in STORAGE_DTYPES:
        raise ValueError(
            f"{name} has the type {escape_unprintable(kind)[:20]}; {', '.join(STORAGE_DTYPES)} "
            "are read here"
        )
    if len(shape) > MAX_DIMENSIONS or math.prod(max(n, 1) for n in shape) > MAX_ELEMENTS:
        raise ValueError(f"{name} has the shape {str(shape)[:80]}, which no array can have")
    return math.prod(shape) * STORAGE_DTYPES[kind].itemsize


def check_contiguous(entries: Mapping[str, TensorEntry]) -> None:
    """Check that the tensors, ordered by their first byte, follow one another without a gap; a name
    that occurs twice in the header leaves a gap as well.

    Raises:
        ValueError: there is a gap or an overlap.
    """
    at = 0
    for name, entry in entries.items():
        if entry.begin != at:
            raise ValueError(
                f"{escape_unprintable(name)[:100]} begins at byte {entry.begin:,}; the tensor "
                f"before it ends at {at:,}"
            )
        at = entry.end


def check_length(file: SafetensorsFile, size: int) -> None:
    """Raise `UserError` where the file is longer or shorter than its header describes."""
    there, end = size - file.start, max((e.end for e in file.entries.values()), default=0)
    if there > end:
        raise UserError(f"{file.path}: {there - end:,} bytes more than its header speaks of")
    if there < end:
        damaged = [name for name, entry in file.entries.items() if entry.end > there]
        raise UserError(
            f"{file.path}: cut short: {size:,} bytes of {file.start + end:,}; damaged: "
            f"{format_names(damaged)}; take the file from a copy, or go back to an earlier "
            "checkpoint"
        )


def format_names(names: Iterable[str]) -> str:
    """Return the first `MAX_LISTED_NAMES` names, comma-separated, and the number of further
    ones."""
    every = [escape_unprintable(name)[:100] for name in names]
    more = f" and {len(every) - MAX_LISTED_NAMES:,} more" if len(every) > MAX_LISTED_NAMES else ""
    return ", ".join(every[:MAX_LISTED_NAMES]) + more
