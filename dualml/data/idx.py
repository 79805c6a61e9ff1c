"""IDX, the file format of MNIST: a magic number, the sizes, then the array, all big-endian.

    0, 0, type, dimensions | size of each dimension as uint32 | elements in row-major order

Source: LeCun, Cortes & Burges, "The MNIST database of handwritten digits", section "file formats".
"""

from __future__ import annotations

import functools
import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.errors import UserError

Array = NDArray[Any]

#: Third byte of the magic number → element type.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = b"\x1f\x8b"


def unpack(path: Path, remedy: str = "", packed: bytes | None = None) -> bytes:
    """The bytes of a file, decompressed if it is gzip (told by its first bytes, not by its name).

    Args:
        remedy: the command that would repair the file, for the error message.
        packed: what the file holds, where it was not written.

    Raises:
        UserError: unreadable, cut off, or damaged gzip.
    """
    data = packed or b""
    try:
        data = path.read_bytes() if packed is None else packed
        if data.startswith(GZIP):
            return gzip.decompress(data)
    except EOFError:
        size = f"the file ends after {len(data):,} bytes"
        what = f"is cut off: {size}, before the end of its gzip stream"
    except (OSError, zlib.error) as error:
        what = f"is damaged gzip ({error}); it has {len(data):,} bytes"
        if not data:
            what = f"cannot be read: {getattr(error, 'strerror', error)}"
    else:
        if path.suffix != ".gz":
            return data
        what = f"is not gzip: expected 1f8b first, found {data[:2].hex() or 'no byte'}"
    raise fault(path, what, remedy)


def parse(
    data: bytes, where: Path, *, dtype: str | None = None, ndim: int | None = None, remedy: str = ""
) -> Array:
    """An uncompressed IDX file as an array in native byte order.

    Args:
        data: the whole file.
        where: its name, for error messages.
        dtype, ndim: what the magic number must announce, if given: ``"uint8", 3`` for images.

    Raises:
        UserError: wrong magic number, or a length that does not follow from the header.
    """
    wrong = functools.partial(fault, where, remedy=remedy)
    if len(data) < 4:
        raise wrong(f"is no IDX file: expected 4 or more bytes, found {len(data)}")
    zeros, kind, dims = struct.unpack(">HBB", data[:4])
    magic = f"magic number 0x{data[:4].hex()}"
    if zeros != 0 or kind not in TYPES or dims == 0:
        raise wrong(f"is no IDX file: expected 0x0000TTDD with a known type TT, found {magic}")
    element = np.dtype(TYPES[kind])
    native = element.newbyteorder("=")
    want = (dtype or native.name, dims if ndim is None else ndim)
    if (native.name, dims) != want:
        raise wrong(
            f"holds another array: expected {want[0]} in {want[1]} dimensions, "
            f"found {native.name} in {dims} ({magic})"
        )
    start = 4 + 4 * dims
    if len(data) < start:
        raise wrong(f"is cut off in its header: expected {start} bytes, found {len(data)}")
    shape = struct.unpack(f">{dims}I", data[4:start])
    size = start + math.prod(shape) * element.itemsize
    if len(data) != size:
        how = "is cut off" if len(data) < size else "has bytes after its end"
        sizes = " × ".join(f"{n:,}" for n in shape)
        raise wrong(f"{how}: {sizes} needs {size:,} bytes uncompressed, found {len(data):,}")
    return np.frombuffer(data, element, offset=start).reshape(shape).astype(native)


def read(
    path: Path, *, dtype: str | None = None, ndim: int | None = None, remedy: str = ""
) -> Array:
    """An IDX file, plain or gzip, as an array; see `unpack` and `parse` for the errors."""
    return parse(unpack(path, remedy), path, dtype=dtype, ndim=ndim, remedy=remedy)


def encode(array: Array) -> bytes:
    """The IDX file of an array of at most 255 dimensions: ``parse(encode(a), …)`` equals ``a``.

    Raises:
        UserError: an element type IDX does not have.
    """
    for kind, name in TYPES.items():
        if array.dtype == np.dtype(name).newbyteorder("="):
            head = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
            return head + array.astype(name).tobytes()
    known = ", ".join(np.dtype(name).newbyteorder("=").name for name in TYPES.values())
    raise UserError(f"IDX has no element type {array.dtype}; it has {known}")


def fault(path: Path, what: str, remedy: str = "") -> UserError:
    """One line: the file, what is wrong with the numbers, the remedy."""
    return UserError(f"{path} {what}" + (f"; remedy: {remedy}" if remedy else ""))
