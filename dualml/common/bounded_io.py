"""Read messages of other processes and machines within limits on length, depth, type and time.

The sender may be slow, broken or malicious. A message that exceeds a limit raises `ValueError` with
a short text; one that does not arrive in time raises `TimeoutError`. The connection between
machines (`dualml.launch.connection`), the checks of students' code (`dualml.course`), the
supervisor of ranks (`dualml.launch.supervise`) and downloads (`dualml.experiment.data.fetch`) read
only through these functions.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from dualml.common import parse

#: Maximum bytes per system call.
CHUNK_BYTES = 1 << 20
#: Bytes of a line from a worker process: its result may hold a million numbers.
MAX_LINE_BYTES = 2**26
#: Default limit on the characters of a text field.
MAX_TEXT_CHARS = 4096

Header = dict[str, Any]
T = TypeVar("T")


def decode_header(text: bytes | bytearray, most: int, finite: bool = True) -> Header:
    """Parse the header of a message, a JSON object in UTF-8, and return it as a dict.

    Args:
        most: maximum length in bytes.
        finite: refuse NaN and infinity.

    Raises:
        ValueError: longer than ``most``, not a JSON object, or beyond the limits of
            `parse.from_json`.
    """
    if len(text) > most:
        raise ValueError(f"a header of {len(text):,} bytes; at most {most:,} are read")
    value = parse.from_json(bytes(text), finite)
    if not isinstance(value, dict):
        raise ValueError(f"a header that is {type(value).__name__}, not an object")
    return value


def read_exactly(
    sock: socket.socket, size: int, deadline: float, silence: float = math.inf
) -> bytearray:
    """Receive exactly ``size`` bytes before ``deadline`` (of `time.monotonic`).

    Memory grows with the bytes received, not with the announced size. The timeout of the socket is
    changed.

    Args:
        silence: maximum seconds without receiving a byte.

    Raises:
        TimeoutError: the deadline has passed, or nothing came for ``silence`` seconds.
        ConnectionError: the other end closed the connection.
    """
    received = bytearray()
    while len(received) < size:
        left = min(deadline - time.monotonic(), silence)
        if left <= 0:
            raise TimeoutError("the time for a message is over")
        sock.settimeout(None if math.isinf(left) else left)
        piece = sock.recv(min(CHUNK_BYTES, size - len(received)))
        if not piece:
            raise ConnectionError("the connection ended")
        received += piece
    return received


def read_lines(pipe: BinaryIO, longest: int) -> Iterator[bytes]:
    """Yield the lines of a pipe, each with its line break, until the pipe ends.

    Skipped are lines of more than ``longest`` bytes before the break, which are never held in
    memory as a whole, and a last line without a break.
    """
    skipping = False
    while line := pipe.readline(longest + 1):
        whole = line.endswith(b"\n")
        if whole and not skipping and len(line) <= longest + 1:
            yield line
        skipping = not whole


def read_body(
    read: Callable[[int], bytes], most: int, seconds: float, piece: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield the chunks of a stream until it ends.

    Both limits are checked after each chunk; the one that exceeds them is not yielded.

    Args:
        read: reads at most the given number of bytes; returns no bytes at the end.
        most: maximum bytes in total.
        seconds: maximum duration in total.
        piece: maximum bytes of a chunk.

    Raises:
        ValueError: the stream has more bytes.
        TimeoutError: the stream takes longer.
    """
    deadline, total = time.monotonic() + seconds, 0
    while part := read(piece):
        total += len(part)
        if total > most:
            raise ValueError(f"more than the {most:,} bytes that are read")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not complete after {seconds:g} s")
        yield part


def get_field(header: Header, name: str, kind: type[T], default: T | None = None) -> T:
    """Return a field of a header, which must be exactly of type ``kind`` (a bool is no int).

    For float, an integer is converted. ``default`` replaces a missing field; None: no default.

    Raises:
        ValueError: the field is missing and has no default, or has another type.
    """
    value = header.get(name, default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def get_int(header: Header, name: str, low: float, high: float, default: int | None = None) -> int:
    """Return an integer field of a header, which must be from ``low`` to ``high``, both inclusive.

    Raises:
        ValueError: the field is missing and has no default, has another type, or is out of range.
    """
    value = get_field(header, name, int, default)
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from {low:g} to {high:g}")
    return value


def get_seconds(header: Header, name: str, high: float, default: float | None = None) -> float:
    """Return a field of a header as seconds, from 0 to ``high``.

    Raises:
        ValueError: the field is missing without a default, of another type, or out of range.
    """
    value = get_field(header, name, float, default)
    if not math.isfinite(value) or not 0 <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from 0 to {high:g} s")
    return value


def get_text(
    header: Header, name: str, longest: int = MAX_TEXT_CHARS, default: str | None = None
) -> str:
    """Return a text field of at most ``longest`` characters.

    Raises:
        ValueError: the field is missing and has no default, has another type, or is longer.
    """
    value = get_field(header, name, str, default)
    if len(value) > longest:
        raise ValueError(f"{name} has {len(value):,} characters; at most {longest:,} are read")
    return value
