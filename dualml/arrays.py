"""Files of arrays, whose headers say how large they are before anything is unpacked.

All raise `UserError`: for a file that is missing or damaged, and for one that would take more
memory than its size gives reason to expect.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dualml.errors import UserError
from dualml.files import check_regular, open_to_read, readable
from dualml.machine import usable_memory

Arrays = dict[str, NDArray[Any]]
#: Of an array of NumPy 1.
MOST_DIMENSIONS = 32
#: Bytes that any packed file may unpack to.
SMALL = 256 * 2**20
#: Beyond, how many times its size a packed file may unpack to: indices in order, which pack well,
#: come to eight times. Packed zeros come to a thousand times.
RATIO = 32


def check_unpacked(nbytes: int, packed: int) -> None:
    """Raises `ValueError` where ``packed`` bytes claim to be so many."""
    most = max(SMALL, RATIO * packed)
    if nbytes > most:
        raise ValueError(f"its {packed:,} bytes unpack to {nbytes:,}; at most {most:,} are read")


def check_memory(nbytes: int, what: str) -> None:
    """Raises `UserError` for more than half of the memory that this process may use."""
    if nbytes > (most := usable_memory() // 2):
        raise UserError(
            f"{what}: {nbytes:,} bytes, more than half of this machine's memory ({most:,})"
        )


def read_npz(path: Path, what: str = "not readable") -> Arrays:
    """The arrays of a NumPy archive by name."""
    with readable(f"{path}: {what}"), open_to_read(path) as file, zipfile.ZipFile(file) as archive:
        file.seek(0)
        if file.read(2) != b"PK":
            raise ValueError("not an .npz")
        members = archive.infolist()
        nbytes = sum(member.file_size for member in members)
        check_unpacked(nbytes, os.fstat(file.fileno()).st_size)
        check_memory(nbytes, str(path))
        return {member.filename.removesuffix(".npy"): unpacked(archive, member)
                for member in members}  # fmt: skip


def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array of an archive."""
    return _array(lambda: archive.open(member), member.file_size, member.filename)


def read_npy(path: Path, what: str = "no readable array") -> NDArray[Any]:
    """The array of an ``.npy`` file."""
    with readable(f"{path}: {what}"):
        size = path.stat().st_size
        check_memory(size, str(path))
        return _array(lambda: open_to_read(path), size, path.name)


def _array(opened: Callable[[], IO[bytes]], size: int, name: str) -> NDArray[Any]:
    """An array, if its header says what the file holds; NumPy would believe the header."""
    with opened() as file:
        first = npy.read_magic(file) == (1, 0)  # type: ignore[no-untyped-call]
        read: Any = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        nbytes, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    # What holds objects is refused below: it would have to run code.
    if not dtype.hasobject and (nbytes != there or min(shape, default=0) < 0):
        raise ValueError(f"{name} of {nbytes:,} bytes by its header has {there:,}")
    with opened() as file:
        array = npy.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
    return np.asarray(array)


def read_tensors(path: Path, what: str = "no readable tensors") -> Arrays:
    """The tensors of a safetensors file by name; the file must be as long as its header says."""
    from safetensors.numpy import load_file

    with readable(f"{path}: {what}"):
        check_regular(path)
        check_memory(path.stat().st_size, str(path))
        return dict(load_file(path))


def fingerprint(*arrays: NDArray[Any]) -> str:
    """SHA-256 over type, shape and elements of the arrays, the same on any byte order."""
    digest = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{array.dtype.name} {array.shape}\n".encode())
        digest.update(little.data)
    return digest.hexdigest()
