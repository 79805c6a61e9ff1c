"""IDX, the file format of MNIST: a magic number, the sizes, then the array, all big-endian.

    0, 0, type, dimensions | size of each dimension as uint32 | elements in row-major order

Source: LeCun, Cortes & Burges, "The MNIST database of handwritten digits", section "file formats".
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dualml.common.array_types import Array
from dualml.common.arrays import MAX_DIMENSIONS, check_unpacked
from dualml.common.errors import UserError
from dualml.common.files import read_bytes
from dualml.common.machine import usable_memory

#: Third byte of the magic number → element type.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = b"\x1f\x8b"
MAX_HEADER_BYTES = 4 + 4 * 255
#: Bytes by which a file may be larger than its array, because incompressible data grow a little in
#: gzip.
SLACK = 2**20


def read_unpacked(
    path: Path, remedy: str = "", packed: bytes | None = None, most: int | None = None
) -> bytes:
    """Return a file's content, decompressed if it is gzip (recognised by its first bytes, not its
    name), at most one byte beyond what its header announces; other files are returned as they are,
    but one named ``.gz`` must be gzip.

    Args:
        path: the file; with ``packed``, only its name.
        remedy: the command that would repair the file, for the error message.
        packed: the file's content, if it is in memory and was never written to disk; else None.
        most: size in bytes of the expected array with its header; None: unknown.

    Raises:
        UserError: unreadable, cut off, damaged gzip, or larger than it should be.
    """
    data = packed or b""
    try:
        if packed is None:
            data = read_bytes(path, usable_memory() // 2 if most is None else most + SLACK)
        if data.startswith(GZIP):
            return decompress(data, most)
    except UserError:
        raise
    except EOFError:
        size = f"the file ends after {len(data):,} bytes"
        what = f"is cut off: {size}, before the end of its gzip stream"
    except (OSError, zlib.error) as error:
        what = f"is damaged gzip ({error}); it has {len(data):,} bytes"
        if not data:
            what = f"cannot be read: {getattr(error, 'strerror', error)}"
    except ValueError as error:
        what = f"is damaged: its header needs more than it can hold: {error}"
    else:
        if path.suffix != ".gz":
            return data
        what = f"is not gzip: expected 1f8b first, found {data[:2].hex() or 'no byte'}"
    raise file_error(path, what, remedy)


def decompress(data: bytes, most: int | None) -> bytes:
    """Decompress a gzip IDX file, at most one byte beyond the size in its header and ``most``
    (None: beyond the header's, which must be plausible), because a gigabyte packs into a megabyte.
    Without a whole IDX header only the first `MAX_HEADER_BYTES` are returned."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        head = stream.read(MAX_HEADER_BYTES)
        element, shape = parse_header(head) or (None, ())
        if element is None or len(head) < 4 + 4 * len(shape):
            return head
        size = 4 + 4 * len(shape) + math.prod(shape) * element.itemsize
        if most is None:
            check_unpacked(size, len(data))
        wanted = size if most is None else min(size, most)
        return head + stream.read(max(0, wanted + 1 - len(head)))


def parse_header(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the element type and the dimensions that an IDX header announces, or None if it is no
    IDX file, has an unknown type or no dimension.

    Dimensions beyond the end of ``data`` are 0; a cut one is filled up with zero bytes.
    """
    zeros, kind, dims = struct.unpack(">HBB", data[:4].ljust(4, b"\xff"))
    if zeros != 0 or kind not in TYPES or dims == 0:
        return None
    there = data[4 : 4 + 4 * dims].ljust(4 * dims, b"\0")
    return np.dtype(TYPES[kind]), struct.unpack(f">{dims}I", there)


def parse(
    data: bytes,
    where: Path,
    *,
    dtype: str | None = None,
    ndim: int | None = None,
    shape: tuple[int, ...] | None = None,
    remedy: str = "",
) -> Array:
    """Parse an uncompressed IDX file into an array in native byte order.

    Args:
        data: the whole file.
        where: its name, for error messages.
        dtype, ndim, shape: what its header must announce, if given: ``"uint8", 3`` for images.
        remedy: what the user should do about a bad file, for error messages.

    Raises:
        UserError: wrong magic number, another array than asked for, or a length that does not
            follow from the header.
    """
    wrong = functools.partial(file_error, where, remedy=remedy)
    if len(data) < 4:
        raise wrong(f"is no IDX file: expected 4 or more bytes, found {len(data)}")
    magic, known = f"magic number 0x{data[:4].hex()}", parse_header(data)
    if known is None:
        raise wrong(f"is no IDX file: expected 0x0000TTDD with a known type TT, found {magic}")
    element, sizes = known
    native, dims = element.newbyteorder("="), len(sizes)
    want = (dtype or native.name, dims if ndim is None else ndim)
    if (native.name, dims) != want:
        raise wrong(
            f"holds another array: expected {want[0]} in {want[1]} dimensions, "
            f"found {native.name} in {dims} ({magic})"
        )
    start = 4 + 4 * dims
    if len(data) < start:
        raise wrong(f"is cut off in its header: expected {start} bytes, found {len(data)}")
    if shape not in (None, sizes):
        raise wrong(f"has shape {sizes}; expected {shape}")
    size = start + math.prod(sizes) * element.itemsize
    if len(data) != size:
        how = "is cut off" if len(data) < size else "has bytes after its end"
        there = f"{len(data):,}" + " or more" * (len(data) > size)
        product = " × ".join(f"{n:,}" for n in sizes)
        raise wrong(f"{how}: {product} needs {size:,} bytes uncompressed, found {there}")
    if dims > MAX_DIMENSIONS:
        raise wrong(f"has {dims} dimensions; at most {MAX_DIMENSIONS} are read")
    return np.frombuffer(data, element, offset=start).reshape(sizes).astype(native)


def read(
    path: Path, *, dtype: str | None = None, ndim: int | None = None, remedy: str = ""
) -> Array:
    """Read an IDX file, plain or gzip, into an array; ``dtype`` and ``ndim`` as for `parse`. Raise
    `UserError` for the faults that `read_unpacked` and `parse` find."""
    return parse(read_unpacked(path, remedy), path, dtype=dtype, ndim=ndim, remedy=remedy)


def encode(array: Array) -> bytes:
    """Encode an array of at most 255 dimensions as an IDX file: ``parse(encode(a), …)`` equals
    ``a``.

    Raises:
        UserError: an element type IDX does not have.
    """
    for kind, name in TYPES.items():
        if array.dtype == np.dtype(name).newbyteorder("="):
            head = struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape)
            return head + array.astype(name).tobytes()
    known = ", ".join(np.dtype(name).newbyteorder("=").name for name in TYPES.values())
    raise UserError(f"IDX has no element type {array.dtype}; it has {known}")


def read_data(path: Path, most: int, remedy: str) -> bytes:
    """Return the content of a file of at most ``most`` bytes; raise `UserError`, with the remedy,
    if it cannot be read."""
    try:
        return read_bytes(path, most)
    except OSError as error:
        raise file_error(path, f"cannot be read: {error.strerror}", remedy) from None


def check_digest(path: Path, data: bytes, checksum: str, remedy: str, note: str = "") -> None:
    """Raise `UserError`, with both digests, unless the digest of ``data`` is ``checksum``, an
    algorithm and a digest such as ``sha256:9f86…``; ``note``, appended to the text, may say what
    was digested."""
    algorithm, _, want = checksum.partition(":")
    have = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if have != want:
        what = f"has the right size but other contents: expected {algorithm} {want}, found {have}"
        raise file_error(path, what + note, remedy)


def file_error(path: Path, what: str, remedy: str = "") -> UserError:
    """Return, without raising it, a one-line error: the file, what is wrong with it, and the remedy
    if there is one."""
    return UserError(f"{path} {what}" + (f"; remedy: {remedy}" if remedy else ""))
