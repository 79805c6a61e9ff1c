"""Messages with arrays between the judge, the warden and a student's ranks.

A message is two lengths, a JSON header and the bytes of its arrays. The reader trusts no sender:
lengths, depth and types are checked before use, and nothing is unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common import parse
from dualml.common.bounded_io import Header, decode_header, read_exactly
from dualml.common.json_types import JsonMapping

#: Largest number of bytes of a header, and of all arrays of one message.
MAX_HEADER_BYTES, MAX_BODY_BYTES = 1 << 20, 64 << 20
#: Largest number of arrays of a message, dimensions of an array, and characters of a name.
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME_CHARS = 4096, 16, 200
DTYPES = frozenset(
    {
        "bool",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *(f"float{bits}" for bits in (16, 32, 64)),
    }
)
LENGTHS = struct.Struct(">II")

Arrays = Mapping[str, Any]


def encode(header: JsonMapping, arrays: Arrays | None = None) -> list[bytes]:
    """Encode a message as pieces of bytes: the two lengths, the header, and each array.

    Raises:
        ValueError: an array has a dtype not in `DTYPES`, or the message is too large.
    """
    described, body = [], []
    for name, value in (arrays or {}).items():
        array = np.ascontiguousarray(value)
        if array.dtype.name not in DTYPES:
            raise ValueError(f"{name} is {array.dtype}, not numbers")
        described.append([name, array.dtype.name, list(np.shape(value))])
        body.append(array.tobytes())
    text = json.dumps({**header, "arrays": described}).encode()
    size = sum(map(len, body))
    if len(text) > MAX_HEADER_BYTES or size > MAX_BODY_BYTES:
        raise ValueError(f"{len(text) + size:,} bytes; at most {MAX_BODY_BYTES:,} are sent")
    return [LENGTHS.pack(len(text), size), text, *body]


def send(door: socket.socket, header: JsonMapping, arrays: Arrays | None = None) -> None:
    """Send a message; raise `ValueError` as `encode`, and `OSError` if the other end is closed."""
    first, text, *body = encode(header, arrays)
    door.sendall(first + text)
    for piece in body:
        door.sendall(piece)


def receive(door: socket.socket, seconds: float) -> tuple[Header, dict[str, NDArray[Any]]]:
    """Receive the next message; return its header and its arrays by name.

    Raises:
        ValueError: the received bytes are no message.
        OSError: the whole message did not arrive in time (`TimeoutError`), or the other end is
            closed.
    """
    deadline = time.monotonic() + seconds
    head, body = lengths(bytes(read_exactly(door, LENGTHS.size, deadline)))
    text = bytes(read_exactly(door, head, deadline))
    return decode(text, bytes(read_exactly(door, body, deadline)))


def lengths(first: bytes) -> tuple[int, int]:
    """Parse the first eight bytes of a message, the lengths of header and body in bytes; raise
    `ValueError` beyond the limits."""
    head, body = LENGTHS.unpack(first)
    if head > MAX_HEADER_BYTES or body > MAX_BODY_BYTES:
        raise ValueError(f"a message of {head + body:,} bytes")
    return head, body


def decode(text: bytes, body: bytes) -> tuple[Header, dict[str, NDArray[Any]]]:
    """Decode a message to its header, without ``arrays``, and its arrays by name, read-only; raise
    `ValueError` if it is invalid."""
    header = decode_header(text, MAX_HEADER_BYTES)
    described = header.pop("arrays", None)
    if not isinstance(described, list) or len(described) > MAX_ARRAYS:
        raise ValueError("a message without a list of its arrays")
    arrays: dict[str, NDArray[Any]] = {}
    start = 0
    for entry in described:
        name, dtype, shape = checked_entry(entry)
        end = start + prod(shape) * np.dtype(dtype).itemsize
        if end > len(body):
            raise ValueError(f"{name} has {end - start:,} bytes, of which not all came")
        arrays[name] = np.frombuffer(body[start:end], dtype).reshape(shape)
        start = end
    if start != len(body):
        raise ValueError(f"{len(body) - start:,} bytes that belong to no array")
    return header, arrays


def checked_entry(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    """Return name, dtype and shape of an array's entry; raise `ValueError` if one of them is
    invalid."""
    if not isinstance(entry, list) or len(entry) != 3:
        raise ValueError("an array that is not described by name, type and shape")
    name, dtype, shape = entry
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS:
        raise ValueError("an array without a name")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{name} has a type that is not read")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{name} has a shape that is not read")
    if not all(type(n) is int and 0 <= n <= MAX_BODY_BYTES for n in shape):
        raise ValueError(f"{name} has a shape that is not read")
    return name, dtype, tuple(shape)


def join_ranks(arrays: Sequence[Arrays]) -> dict[str, Any]:
    """Join the arrays of all ranks for one message: ``p`` of rank 1 becomes ``1/p``."""
    return {f"{rank}/{name}": a for rank, own in enumerate(arrays) for name, a in own.items()}


def split_by_rank(arrays: Arrays, size: int) -> list[dict[str, Any]]:
    """Undo `join_ranks` for ``size`` ranks: return each rank's arrays by name."""
    ranks: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, a in arrays.items():
        rank, _, rest = name.partition("/")
        ranks[int(rank)][rest] = a
    return ranks


class Stream:
    """Incremental decoder of the messages on a socket, which never waits."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, piece: bytes) -> list[tuple[Header, dict[str, NDArray[Any]]]]:
        """Add bytes, and return the messages that they complete, each as its header and its arrays
        by name; an incomplete rest is kept. Raise `ValueError` if they are invalid."""
        self.buffer += piece
        complete = []
        while len(self.buffer) >= LENGTHS.size:
            head, body = lengths(bytes(self.buffer[: LENGTHS.size]))
            end = LENGTHS.size + head + body
            if len(self.buffer) < end:
                break
            text = bytes(self.buffer[LENGTHS.size : LENGTHS.size + head])
            complete.append(decode(text, bytes(self.buffer[LENGTHS.size + head : end])))
            del self.buffer[:end]
        return complete


def plain_text(value: Any, longest: int = 500) -> str:
    """Return a value as text that can be stored and shown: truncated, without lone surrogates."""
    text = str(value)[:longest]
    return text if parse.is_unicode(text) else text.encode("utf-8", "replace").decode("utf-8")
