"""MindSpore's checkpoint files (``.ckpt``), read and written without MindSpore, tensor by tensor.

The file is one protocol buffer message, ``Checkpoint``: field 1, repeated, is a value with a tag,
its name (field 1), and a tensor (field 2) of dims (1), type (2) and content (3). Consecutive values
of one tag are parts of one tensor, each with all dims, since a message may not be larger than
2 GiB. A scalar has no dims, or the dims [0]. With MindSpore's ``crc_check`` the bytes ``crc_num``
and ten more follow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dualml.common.arrays import MAX_DIMENSIONS
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import convert_read_errors, open_to_read
from dualml.parity.models.weights.protobuf import (
    encode_field,
    encode_varint,
    field_key,
    read_end,
    read_text,
    read_varint,
)
from dualml.parity.models.weights.stored import BFLOAT16, FileBytes, FileTensor

#: MindSpore's names of number types → safetensors'.
KINDS = {
    "Bool": "BOOL",
    "Int8": "I8",
    "Int16": "I16",
    "Int32": "I32",
    "Int64": "I64",
    "UInt8": "U8",
    "UInt16": "U16",
    "UInt32": "U32",
    "UInt64": "U64",
    "Float16": "F16",
    "Float32": "F32",
    "Float64": "F64",
    "BFloat16": BFLOAT16,
}
NAMES = {kind: name for name, kind in KINDS.items()}
NUMPY = {"BOOL": 1, "I8": 1, "U8": 1, "I16": 2, "U16": 2, "F16": 2, BFLOAT16: 2, "F64": 8, "I64": 8}
#: Type of a text among the values, such as what `save_checkpoint` appends.
TEXT = "str"
CRC, CRC_BYTES = b"crc_num", 17
#: Bytes of the content of one value, at most, as MindSpore writes it.
PART_BYTES = 512 * 2**20
REMEDY = "save it again with mindspore.save_checkpoint, without enc_key"


def item_bytes(kind: str) -> int:
    """Return the bytes of one number of a type, named as in safetensors (``F32``); 4 for unlisted
    types."""
    return NUMPY.get(kind, 4)


def index_checkpoint(path: Path) -> dict[str, FileTensor]:
    """Return name → tensor of a ``.ckpt`` file, whose numbers are read only when they are asked
    for. Texts among the values are left out.

    Raises:
        UserError: the file is missing, truncated, encrypted or no checkpoint.
    """
    found: dict[str, FileBytes] = {}
    what = f"{path}: not a readable MindSpore checkpoint"
    with convert_read_errors(what), open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise ValueError("it is empty")
        last = ""
        for name, kind, shape, place in iter_values(file, size):
            shown = escape_unprintable(name)
            if kind == TEXT:
                continue
            if kind not in KINDS:
                raise ValueError(f"{shown} has the type {kind[:40]!r}; {REMEDY}")
            part = FileBytes(path, (place,), KINDS[kind], shape)
            if name in found:
                known = found[name]
                if name != last or (known.kind, known.shape) != (part.kind, shape):
                    raise ValueError(f"{shown} is there twice")
                part = FileBytes(path, (*known.places, place), known.kind, shape)
            found[name], last = part, name
        for name, tensor in found.items():
            there = sum(count for _, count in tensor.places)
            expected = math.prod(tensor.shape) * item_bytes(tensor.kind)
            if there != expected:
                shown = f"{escape_unprintable(name)} {tensor.shape}"
                raise ValueError(f"{shown} has {there:,} bytes, not {expected:,}")
    if not found:
        raise UserError(f"{what}: it has no tensor")
    return {name: tensor.as_tensor() for name, tensor in found.items()}


def iter_values(
    file: BinaryIO, size: int
) -> Iterator[tuple[str, str, tuple[int, ...], tuple[int, int]]]:
    """Yield (name, type, shape, (offset, bytes) of the content) of each value in a file, from its
    present position.

    Args:
        size: size of the file in bytes.

    Raises:
        ValueError: it does not follow the format, or ends too early.
    """
    while file.tell() < size:
        begin = file.tell()
        if size - begin == CRC_BYTES and file.read(len(CRC)) == CRC:
            return
        file.seek(begin)
        if read_varint(file) != field_key(1):
            raise ValueError(f"byte {begin:,} begins no value; it may be encrypted: {REMEDY}")
        end = read_end(file, size)
        name, tensor_end = "", 0
        while file.tell() < end:
            key = read_varint(file)
            if key == field_key(1):
                name = read_text(file, read_end(file, end))
            elif key == field_key(2):
                tensor_end = read_end(file, end)
                kind, shape, place = read_tensor(file, tensor_end)
            else:
                raise ValueError(f"{escape_unprintable(name)} is no tensor (field {key >> 3})")
        if not tensor_end:
            raise ValueError(f"{escape_unprintable(name)} has no tensor")
        yield name, kind, shape, place


def read_tensor(file: BinaryIO, end: int) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Read a tensor that ends at offset ``end``, without its numbers, and return (type, shape,
    (offset, bytes) of its content); raise `ValueError` if it does not follow the format."""
    kind, shape, place = "", list[int](), (0, 0)
    while file.tell() < end:
        key = read_varint(file)
        if key == 1 << 3:
            shape.append(read_varint(file))
        elif key == field_key(1):  # packed
            last = read_end(file, end)
            while file.tell() < last:
                shape.append(read_varint(file))
        elif key == field_key(2):
            kind = read_text(file, read_end(file, end))
        elif key == field_key(3):
            last = read_end(file, end)
            place = file.tell(), last - file.tell()
            file.seek(last)
        else:
            raise ValueError(f"a tensor with the unknown field {key >> 3}")
        if len(shape) > MAX_DIMENSIONS:
            raise ValueError(f"a tensor with more than {MAX_DIMENSIONS} axes")
    if shape == [0] and place[1]:
        shape = []  # a scalar
    return kind, tuple(shape), place


class CheckpointWriter:
    """A ``.ckpt`` file to which tensors are appended one by one; it has a temporary name until
    `finish`.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path.with_name(f".{path.name}.{os.getpid()}")
        self.file = self.partial.open("wb", buffering=0)

    def append(self, name: str, kind: str, array: NDArray[Any]) -> None:
        """Append a tensor.

        Args:
            kind: its type of numbers, named as in safetensors (``F32``).
            array: its numbers; bfloat16 as uint16.

        Raises:
            OSError: there is no space left.
        """
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        dims = b"".join(encode_varint(1 << 3) + encode_varint(n) for n in array.shape)
        tag = encode_field(1, name.encode())
        head = dims + encode_field(2, NAMES[kind].encode())
        step = PART_BYTES
        for begin in range(0, max(1, flat.nbytes), step):
            part = flat[begin : begin + step]
            content = encode_varint(field_key(3)) + encode_varint(part.nbytes)
            tensor = len(head) + len(content) + part.nbytes
            value = tag + encode_varint(field_key(2)) + encode_varint(tensor)
            whole = encode_varint(field_key(1)) + encode_varint(len(value) + tensor)
            self.write(whole + value + head + content)
            self.write(part.data)

    def write(self, data: bytes | memoryview) -> None:
        """Write all bytes at the end of the file; raise `OSError` if there is no space left."""
        rest = memoryview(data)
        while len(rest):
            rest = rest[self.file.write(rest) :]

    def finish(self) -> None:
        """Close the file and give it its final name; an earlier file of that name is replaced."""
        self.file.close()
        self.partial.replace(self.path)

    def discard(self) -> None:
        """Close and delete an unfinished file."""
        self.file.close()
        self.partial.unlink(missing_ok=True)
