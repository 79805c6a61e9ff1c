"""Safetensors files that are written and read one tensor at a time.

The library writes a file from all of its tensors at once, and maps a whole file to read one tensor.
A model's trace is several times as large as the model, so that neither fits where the model just
fits. The format (https://github.com/huggingface/safetensors, "Format") has its header first;
`TensorFileWriter` reserves room for it, appends tensors as they arise, and fills it in at the end
with spaces behind it, which the format allows.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import open_tensors
from dualml.common.errors import UserError
from dualml.common.files import open_to_read

#: Names of the format's number types → NumPy's.
DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
KINDS: Mapping[str, str] = {name: kind for kind, name in DTYPES.items()}
#: Prefix of the names of tensors that were replaced while their file was written: the format
#: allows no gaps.
REPLACED = "replaced/"
#: Bytes that are moved at once if a header needs more than its reserved bytes.
MOVED_BYTES = 1 << 24
#: Bytes from which a tensor is mapped and not read: the pages that the system has of the file then
#: serve as its memory. New pages cost several times as much as what is computed with them.
MAPPED_BYTES = 1 << 20


@dataclass(frozen=True)
class TensorOnDisk:
    """A tensor of a safetensors file that is read when it is needed.

    Attributes:
        path: the file.
        offset: bytes before the tensor's numbers, which are in C order.
    """

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Number of bytes of the tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def read(self) -> NDArray[Any]:
        """Read the tensor as an array of its shape. Changing the array does not change the file;
        a large one is mapped, see `read_array`, so that the file may not change while it is used.

        Raises:
            OSError: the file cannot be read.
            ValueError: it ends before the tensor does.
        """
        with open_to_read(self.path) as file:
            return read_array(file, self.offset, self.dtype, self.shape)


def read_array(file: Any, offset: int, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Read an array from an open file. One of `MAPPED_BYTES` or more is mapped: it shares the pages
    of the file until it is changed, so that the file may not change while the array is used.
    Changing the array does not change the file.

    Args:
        offset: bytes before the numbers, which are in C order.
        dtype: NumPy's type of the numbers.

    Raises:
        OSError: the file cannot be read.
        ValueError: it ends before the array does.
    """
    count, size = math.prod(shape), np.dtype(dtype).itemsize
    begin = offset % mmap.ALLOCATIONGRANULARITY
    # Kernels may need aligned numbers, and only `read_into` says what is missing.
    if count * size < MAPPED_BYTES or offset % size or is_shorter_than(file, offset + count * size):
        array = np.empty(shape, dtype)
        file.seek(offset)
        read_into(file, array)
        return array
    place = mmap.mmap(
        file.fileno(), begin + count * size, access=mmap.ACCESS_COPY, offset=offset - begin
    )
    return np.frombuffer(place, dtype, count, begin).reshape(shape)


def is_shorter_than(file: Any, size: int) -> bool:
    """Return whether an open file has fewer bytes than this."""
    return os.fstat(file.fileno()).st_size < size


def read_into(file: Any, array: NDArray[Any]) -> None:
    """Fill a contiguous array with the next bytes of a file; `ValueError` if there are too few."""
    view = array.reshape(-1).view(np.uint8).data
    while len(view):
        count = file.readinto(view)
        if not count:
            raise ValueError(f"{file.name}: {len(view):,} bytes are missing")
        view = view[count:]


class LazyArrays(Mapping[str, NDArray[Any]]):
    """Named arrays of which each is read, or computed, anew whenever it is looked up.

    >>> (arrays := LazyArrays()).add("x", (2,), lambda: np.ones(2))
    >>> arrays["x"].sum()
    2.0
    """

    def __init__(self) -> None:
        self.entries: dict[str, tuple[tuple[int, ...], Callable[[], NDArray[Any]]]] = {}

    def add(self, name: str, shape: tuple[int, ...], read: Callable[[], NDArray[Any]]) -> None:
        """Add an array of this shape, or replace the one of this name; ``read`` returns it."""
        self.entries[name] = shape, read

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array without reading it."""
        return self.entries[name][0]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.entries[name][1]()

    def __contains__(self, name: object) -> bool:
        return name in self.entries  # the inherited method would read the array

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def array_shape(arrays: Mapping[str, NDArray[Any]], name: str) -> tuple[int, ...]:
    """Return the shape of a named array, without reading it from a disk."""
    return arrays.shape(name) if isinstance(arrays, LazyArrays) else arrays[name].shape


def select_arrays(arrays: Mapping[str, NDArray[Any]], names: Iterable[str]) -> LazyArrays:
    """Return some of the arrays, in the order of ``names``, without reading them."""
    chosen = LazyArrays()
    for name in names:
        chosen.add(name, array_shape(arrays, name), partial(arrays.__getitem__, name))
    return chosen


def read_layout(path: Path, what: str) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Read the header of a safetensors file: name → type of numbers by the format's name (``F32``),
    shape, and offset of the tensor's numbers from the beginning of the file in bytes; in the order
    of the file.

    Args:
        what: words of the message after the path, if the header cannot be read.

    Raises:
        UserError: the file is missing or damaged, or its size is not that of its header.
    """
    with open_tensors(path, what) as checked, open_to_read(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        rows = {name: header[name] for name in checked.offset_keys()}
        return {
            name: (row["dtype"], tuple(row["shape"]), 8 + length + row["data_offsets"][0])
            for name, row in rows.items()
        }


def index_tensors(path: Path, what: str) -> dict[str, TensorOnDisk]:
    """Read the header of a safetensors file: name → tensor, in the order of the file.

    Args:
        what: words of the message after the path, if the header cannot be read.

    Raises:
        UserError: the file is missing or damaged, its size is not that of its header, or it has a
            type of numbers that NumPy lacks.
    """
    tensors = {}
    for name, (kind, shape, begin) in read_layout(path, what).items():
        if kind not in DTYPES:
            raise UserError(
                f"{path}: {what}: {name} has the type {kind}, which NumPy has not itself"
            )
        tensors[name] = TensorOnDisk(path, begin, DTYPES[kind], shape)
    return tensors


class TensorFileWriter:
    """A safetensors file to which tensors are appended one by one.

    Until `finish` the file has another name, and no header.

    Args:
        path: name of the finished file.
        reserve: bytes for the header; if it needs more, `finish` moves all tensors within the file,
            and large arrays that were read before, which are mapped, may not be used any more.
        metadata: texts for the header.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path, reserve: int, metadata: Mapping[str, str] | None = None) -> None:
        self.metadata = dict(metadata or {})
        self.path, self.partial = path, path.with_name(f".{path.name}.{os.getpid()}")
        self.reserved = 8 + reserve
        self.size = 0  # bytes of the tensors so far
        self.entries: dict[str, dict[str, Any]] = {}
        self.replaced = 0
        # Unbuffered: tensors are large, and a buffer would copy each of them.
        self.file = self.partial.open("w+b", buffering=0)

    def append(self, name: str, array: NDArray[Any], kind: str = "") -> Callable[[], NDArray[Any]]:
        """Append a tensor. An earlier one of the same name stays in the file, renamed to
        ``replaced/N``.

        Args:
            kind: the format's name of the type of numbers, if the array has only their bits.

        Returns:
            A function that reads the tensor, from now on and after `finish`.

        Raises:
            OSError: there is no space left.
            ValueError: the format has no such type of numbers.
        """
        kind = kind or KINDS.get(array.dtype.name, "")
        if not kind:
            raise ValueError(f"{name} has the type {array.dtype}, which safetensors has not")
        values = np.ascontiguousarray(array).reshape(-1)
        self.write_at(self.reserved + self.size, values.view(np.uint8).data)
        if name in self.entries:
            self.entries[f"{REPLACED}{self.replaced}"] = self.entries.pop(name)
            self.replaced += 1
        begin, self.size = self.size, self.size + values.nbytes
        self.entries[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [begin, self.size],
        }
        return partial(self.read, begin, array.dtype.name, array.shape)

    def read(self, begin: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Read the tensor that begins ``begin`` bytes behind the header, before or after
        `finish`."""
        path = self.path if self.file.closed else self.partial
        return TensorOnDisk(path, self.reserved + begin, dtype, shape).read()

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """Write bytes at an offset of the file; `OSError` if there is no space left."""
        self.file.seek(offset)
        while len(data):
            data = data[self.file.write(data) :]

    def finish(self) -> None:
        """Write the header and give the file its name.

        Raises:
            OSError: there is no space left.
        """
        texts = {"__metadata__": self.metadata} if self.metadata else {}
        header = json.dumps(texts | self.entries, separators=(",", ":")).encode()
        if 8 + len(header) > self.reserved:
            self.move_tensors(8 + len(header))
        header = header.ljust(self.reserved - 8)
        self.write_at(0, struct.pack("<Q", len(header)) + header)
        self.file.close()
        self.partial.replace(self.path)

    def move_tensors(self, start: int) -> None:
        """Copy all tensors to ``start`` bytes behind the beginning of the file, last ones first."""
        for at in reversed(range(0, self.size, MOVED_BYTES)):
            self.file.seek(self.reserved + at)
            data = np.empty(min(MOVED_BYTES, self.size - at), np.uint8)
            read_into(self.file, data)
            self.write_at(start + at, data.data)
        self.reserved = start

    def discard(self) -> None:
        """Close and delete an unfinished file."""
        self.file.close()
        self.partial.unlink(missing_ok=True)
