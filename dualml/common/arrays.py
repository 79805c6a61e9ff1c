"""Read array files whose headers state their size before anything is unpacked.

All readers raise `UserError` for a file that is missing or damaged, and for one that would take
more memory than its size justifies.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dualml.common.array_types import Arrays as Arrays
from dualml.common.errors import UserError
from dualml.common.files import check_regular, convert_read_errors, open_to_read
from dualml.common.machine import usable_memory

#: Dimensions of an array, at most: the limit of NumPy 1.
MAX_DIMENSIONS = 32
#: Bytes that any packed file may unpack to, however small it is.
SMALL = 256 * 2**20
#: Above `SMALL`, how many times its size a packed file may unpack to: sorted indices, which pack
#: well, reach a factor of eight, packed zeros a factor of a thousand.
RATIO = 32


def check_unpacked(nbytes: int, packed: int) -> None:
    """Raise `ValueError` if ``packed`` bytes claim to unpack to implausibly many ``nbytes``: to
    more than `SMALL` bytes and more than `RATIO` times their own number."""
    most = max(SMALL, RATIO * packed)
    if nbytes > most:
        raise ValueError(f"its {packed:,} bytes unpack to {nbytes:,}; at most {most:,} are read")


def check_memory(nbytes: int, what: str) -> None:
    """Raise `UserError` if ``nbytes`` exceed half of the memory, free or not, that this process may
    use; ``what`` begins the message."""
    if nbytes > (most := usable_memory() // 2):
        raise UserError(
            f"{what}: {nbytes:,} bytes, more than half of this machine's memory ({most:,})"
        )


def read_npz(path: Path, what: str = "not readable") -> Arrays:
    """Read all arrays of a NumPy archive into memory, by name (without ``.npy``).

    Args:
        what: words of the message after the path, if the archive cannot be read.

    Raises:
        UserError: the archive is missing, damaged, too large, or holds Python objects.
    """
    with (
        convert_read_errors(f"{path}: {what}"),
        open_to_read(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        file.seek(0)
        if file.read(2) != b"PK":
            raise ValueError("not an .npz")
        members = archive.infolist()
        nbytes = sum(member.file_size for member in members)
        check_unpacked(nbytes, os.fstat(file.fileno()).st_size)
        check_memory(nbytes, str(path))
        return {
            member.filename.removesuffix(".npy"): read_member(archive, member) for member in members
        }


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array of an open NumPy archive; `ValueError` if the shape and type in its header do
    not give the size of its entry, or if it holds Python objects."""
    return _read_checked(lambda: archive.open(member), member.file_size, member.filename)


def read_npy(path: Path, what: str = "no readable array") -> NDArray[Any]:
    """Read the array of an ``.npy`` file; `UserError` as for `read_npz`.

    Args:
        what: words of the message after the path, if the file cannot be read.
    """
    with convert_read_errors(f"{path}: {what}"):
        size = path.stat().st_size
        check_memory(size, str(path))
        return _read_checked(lambda: open_to_read(path), size, path.name)


def _read_checked(open_file: Callable[[], IO[bytes]], size: int, name: str) -> NDArray[Any]:
    """Read an array after checking its header against the file size, which NumPy does not do.

    Args:
        open_file: opens the file at its beginning; called twice.
        size: bytes of the file, with its header.
        name: the file in messages.

    Raises:
        ValueError: header and size differ, or the array holds Python objects.
    """
    with open_file() as file:
        first = npy.read_magic(file) == (1, 0)  # type: ignore[no-untyped-call]
        read: Any = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
        shape, _, dtype = read(file)
        nbytes, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    # Arrays of objects are refused below: unpickling them would run code.
    if not dtype.hasobject and (nbytes != there or min(shape, default=0) < 0):
        raise ValueError(f"{name} of {nbytes:,} bytes by its header has {there:,}")
    with open_file() as file:
        array = npy.read_array(file, allow_pickle=False)  # type: ignore[no-untyped-call]
    return np.asarray(array)


def read_tensors(path: Path, what: str = "no readable tensors") -> Arrays:
    """Read all tensors of a safetensors file into memory, by name; its size must match its header.

    Args:
        what: words of the message after the path, if the file cannot be read.

    Raises:
        UserError: the file is missing, damaged, or larger than half of the memory.
    """
    with open_tensors(path, what) as file:
        check_memory(path.stat().st_size, str(path))
        tensors = {name: file.get_tensor(name) for name in file.offset_keys()}  # as in the file
        for name, tensor in tensors.items():
            # NumPy knows bfloat16 once somebody has imported a package that registers it.
            if tensor.dtype.isbuiltin != 1:
                raise ValueError(f"{name} has the type {tensor.dtype}, which NumPy has not itself")
        return tensors


@contextmanager
def open_tensors(path: Path, what: str) -> Iterator[Any]:
    """Open a safetensors file as `safetensors.safe_open` does: only the header is read, which must
    match the size of the file, until the caller asks for a tensor.

    Args:
        what: words of the message after the path, if the header or a tensor cannot be read.

    Raises:
        UserError: the file is missing or damaged, or the caller's block failed.
    """
    from safetensors import safe_open

    with convert_read_errors(f"{path}: {what}"):
        check_regular(path)
        with safe_open(path, framework="numpy") as file:
            yield file


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256, in hex, over dtype, shape and elements of the arrays in their order; it
    does not depend on byte order or memory layout."""
    digest = hashlib.sha256()
    for array in arrays:
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{array.dtype.name} {array.shape}\n".encode())
        digest.update(little.data)
    return digest.hexdigest()
