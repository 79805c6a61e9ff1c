"""A safetensors file, read by parts, without a copy of it in memory.

The format: eight bytes with the length of the header, little-endian; the header, a JSON table
``name → {dtype, shape, data_offsets}``; the tensors' bytes in C order, one behind the other. The
readers of `safetensors` for NumPy know no bfloat16, its writers (see `writing`) want all at once.

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

from dualml.arrays import MOST_DIMENSIONS
from dualml.checkpoint.kinds import HELD, Array
from dualml.errors import UserError, plain
from dualml.files import open_to_read
from dualml.parse import from_json

#: Bytes of a header: what the library reads, too.
LONGEST_HEADER = 100_000_000
METADATA = "__metadata__"
#: Elements of a tensor, whose bytes an address of 64 bits can count.
LARGEST = 2**59
#: Names that an error lists.
MOST_NAMES = 5


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its bytes are ``begin`` … ``end`` − 1 behind the header."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class TensorFile:
    """A file whose header is sound and which has all the bytes that its header speaks of.

    Attributes:
        start: bytes before the first tensor.
        entries: tensor → where it is, in the order of the file.
        metadata: texts by key.
        stamp: what tells it from another file that took its place.
    """

    path: Path
    start: int
    entries: Mapping[str, Entry]
    metadata: Mapping[str, str] = field(default_factory=dict)
    stamp: tuple[int, ...] = ()

    def mapped(self) -> Array:
        """For as long as somebody uses it: a checkpoint may have more files than a process may
        have open."""
        try:
            with open_to_read(self.path) as file:
                if stamp_of(os.fstat(file.fileno())) != self.stamp:
                    raise replaced(self.path)
                return np.memmap(file, np.uint8, "r")
        except FileNotFoundError:
            raise replaced(self.path) from None

    def array(self, name: str) -> Array:
        """The tensor's bits as they stand in the file, mapped: what is not touched is not read."""
        entry = self.entries[name]
        dtype = HELD[entry.kind]
        if entry.begin == entry.end:
            return np.empty(entry.shape, dtype)
        raw = self.mapped()[self.start + entry.begin : self.start + entry.end]
        return raw.view(dtype).reshape(entry.shape)


def opened(path: Path) -> TensorFile:
    """The header of a file, checked.

    Raises:
        UserError: no safetensors file; one that was cut short, with the tensors that are damaged;
            a type of elements that is not read here.
    """
    try:
        begin = open_to_read(path)
    except FileNotFoundError:
        raise replaced(path) from None
    with begin as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        size = stamp[-1]
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
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
        entries = {name: entry_of(name, value) for name, value in table.items()}
        entries = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
        check_dense(entries)
    except ValueError as error:
        raise UserError(f"{path}: not a sound safetensors file: {error}") from None
    file_ = TensorFile(path, 8 + length, entries, metadata, stamp)
    check_length(file_, size)
    return file_


def stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def replaced(path: Path) -> UserError:
    """What is said of a file that went while its checkpoint was read."""
    return UserError(f"{path}: the checkpoint was replaced while it was read; open it again")


def entry_of(name: str, value: Any) -> Entry:
    """Raises `ValueError` for what is no entry of a header."""
    shown = plain(name)[:100]
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
    nbytes = size_of(shown, kind, shape)
    if len(place) != 2 or place[1] - place[0] != nbytes:
        raise ValueError(f"{shown} of {nbytes:,} bytes by its shape stands at {place[:3]}")
    return Entry(kind, tuple(shape), *place)


def size_of(name: str, kind: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor; `ValueError` for a type that is not read here and for a shape that no
    array can have."""
    if kind not in HELD:
        raise ValueError(f"{name} has the type {plain(kind)[:20]}; {', '.join(HELD)} are read here")
    if len(shape) > MOST_DIMENSIONS or math.prod(max(n, 1) for n in shape) > LARGEST:
        raise ValueError(f"{name} has the shape {str(shape)[:80]}, which no array can have")
    return math.prod(shape) * HELD[kind].itemsize


def check_dense(entries: Mapping[str, Entry]) -> None:
    """Tensors stand one behind the other; a name that is given twice leaves a hole, too."""
    at = 0
    for name, entry in entries.items():
        if entry.begin != at:
            raise ValueError(
                f"{plain(name)[:100]} begins at byte {entry.begin:,}; the tensor before it ends at "
                f"{at:,}"
            )
        at = entry.end


def check_length(file: TensorFile, size: int) -> None:
    there, end = size - file.start, max((e.end for e in file.entries.values()), default=0)
    if there > end:
        raise UserError(f"{file.path}: {there - end:,} bytes more than its header speaks of")
    if there < end:
        damaged = [name for name, entry in file.entries.items() if entry.end > there]
        raise UserError(
            f"{file.path}: cut short: {size:,} bytes of {file.start + end:,}; damaged: "
            f"{listed(damaged)}; take the file from a copy, or go back to an earlier checkpoint"
        )


def listed(names: Iterable[str]) -> str:
    """The first of many names and how many more there are."""
    every = [plain(name)[:100] for name in names]
    more = f" and {len(every) - MOST_NAMES:,} more" if len(every) > MOST_NAMES else ""
    return ", ".join(every[:MOST_NAMES]) + more
