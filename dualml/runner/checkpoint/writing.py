"""Write a safetensors file in one pass: tensors arrive in pieces and are hashed on the way."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.errors import UserError
from dualml.common.files import open_to_read
from dualml.runner.checkpoint.kinds import STORAGE_DTYPES, Array
from dualml.runner.checkpoint.tensorfile import METADATA


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor to be written: its element type (``F32``), its shape, and ``pieces``, which returns
    an iterable of arrays with its bits in C order."""

    kind: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[Array]]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * STORAGE_DTYPES[self.kind].itemsize


@dataclass(frozen=True)
class WrittenFile:
    """Size in bytes and SHA-256 of a file that was written."""

    bytes: int
    sha256: str


def encode_header(tensors: Mapping[str, PlannedTensor], metadata: Mapping[str, str]) -> bytes:
    """Return the beginning of a safetensors file, the length and the header, padded so that tensors
    begin at multiples of eight bytes; tensors are placed in the given order."""
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, tensor in tensors.items():
        table[name] = {
            "dtype": tensor.kind,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(
    path: Path, tensors: Mapping[str, PlannedTensor], metadata: Mapping[str, str]
) -> WrittenFile:
    """Write a new file and flush it to the disk.

    Tensors are ordered by element width, widest first, as the library orders them: each begins at a
    multiple of its width.

    Raises:
        UserError: a tensor has a name that the format reserves.
        OSError: among others, the disk is full; the incomplete file is left.
    """
    if METADATA in tensors:
        raise UserError(f"no tensor of a safetensors file can be called {METADATA}")
    ordered = dict(
        sorted(tensors.items(), key=lambda t: (-STORAGE_DTYPES[t[1].kind].itemsize, t[0]))
    )
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        parts: Iterable[bytes | memoryview]
        parts = itertools.chain([encode_header(ordered, metadata)], iter_contents(ordered))
        for content in parts:
            file.write(content)
            digest.update(content)
            size += len(content)
        file.flush()
        os.fsync(file.fileno())
    return WrittenFile(size, digest.hexdigest())


def iter_contents(tensors: Mapping[str, PlannedTensor]) -> Iterable[memoryview]:
    """Yield the bytes of all tensors in order, piece by piece, in their storage types."""
    for name, tensor in tensors.items():
        left = tensor.nbytes
        for piece in tensor.pieces():
            raw = (
                np.ascontiguousarray(piece, STORAGE_DTYPES[tensor.kind]).reshape(-1).view(np.uint8)
            )
            left -= raw.nbytes
            yield raw.data
        assert left == 0, f"{name}: {left} bytes are missing"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
