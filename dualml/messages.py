"""Messages from other processes and machines, read within limits: length, depth, type, total time.

Whoever sends may be slow, broken or hostile. A message that is beyond a limit raises `ValueError`
with a short text; one that does not come in time, `TimeoutError`. The wire between machines
(`dualml.launch.wire`), the judge of students' code (`dualml.course`), the supervisor of ranks
(`dualml.launch.supervise`) and downloads (`dualml.data.fetch`) read with these functions only.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

from dualml import parse

#: Bytes that one call of the system reads at most.
PIECE = 1 << 20
#: Bytes of a line from a process of ours: its result may hold a million numbers.
LONGEST_LINE = 2**26
#: Characters of a text field where nobody says otherwise.
LONGEST_TEXT = 4096

Header = dict[str, Any]
T = TypeVar("T")


def decode_header(text: bytes | bytearray, most: int, finite: bool = True) -> Header:
    """Parse the JSON object that a message begins with.

    Args:
        most: bytes that it may have.
        finite: refuse NaN and infinity, too.

    Raises:
        ValueError: longer, no JSON object, nested too deep, a number beyond 64 bits.
    """
    if len(text) > most:
        raise ValueError(f"a header of {len(text):,} bytes; at most {most:,} are read")
    value = parse.from_json(bytes(text), finite)
    if not isinstance(value, dict):
        raise ValueError(f"a header that is {type(value).__name__}, not an object")
    return value


def read_exactly(
    door: socket.socket, size: int, deadline: float, silence: float = math.inf
) -> bytearray:
    """Receive ``size`` bytes before ``deadline`` (of `time.monotonic`), however slowly they come.

    Memory grows with what has come, not with what was announced.

    Args:
        silence: seconds without a single byte, at most.

    Raises:
        TimeoutError: the time is over.
        ConnectionError: the other end closed.
    """
    received = bytearray()
    while len(received) < size:
        left = min(deadline - time.monotonic(), silence)
        if left <= 0:
            raise TimeoutError("the time for a message is over")
        door.settimeout(None if math.isinf(left) else left)
        piece = door.recv(min(PIECE, size - len(received)))
        if not piece:
            raise ConnectionError("the connection ended")
        received += piece
    return received


def read_lines(pipe: BinaryIO, longest: int) -> Iterator[bytes]:
    """Yield the lines of a pipe to its end; a line of more than ``longest`` bytes is left out
    without being held in memory."""
    skipping = False
    while line := pipe.readline(longest + 1):
        whole = line.endswith(b"\n")
        if whole and not skipping and len(line) <= longest + 1:
            yield line
        skipping = not whole


def read_body(
    read: Callable[[int], bytes], most: int, seconds: float, piece: int = PIECE
) -> Iterator[bytes]:
    """Yield the pieces of a stream to its end.

    Args:
        read: the stream's; returns at most so many bytes, none at its end.
        most: bytes of all pieces together.
        seconds: that all of it may take.

    Raises:
        ValueError: more bytes.
        TimeoutError: more time.
    """
    deadline, total = time.monotonic() + seconds, 0
    while part := read(piece):
        total += len(part)
        if total > most:
            raise ValueError(f"more than the {most:,} bytes that are read")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not complete after {seconds:g} s")
        yield part


def field_of(header: Header, name: str, kind: type[T], default: T | None = None) -> T:
    """Return a field of a header as ``kind``; a float may be written as a whole number.

    Raises:
        ValueError: missing without a default, or of another type.
    """
    value = header.get(name, default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def number_of(
    header: Header, name: str, low: float, high: float, default: int | None = None
) -> int:
    """Return a whole number from ``low`` to ``high``.

    Raises:
        ValueError: missing without a default, another type, out of range.
    """
    value = field_of(header, name, int, default)
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from {low:g} to {high:g}")
    return value


def seconds_of(header: Header, name: str, high: float, default: float | None = None) -> float:
    """Return a time in seconds from 0 to ``high``.

    Raises:
        ValueError: missing without a default, another type, not finite, out of range.
    """
    value = field_of(header, name, float, default)
    if not math.isfinite(value) or not 0 <= value <= high:
        raise ValueError(f"{name} is {value}; it must be from 0 to {high:g} s")
    return value


def text_of(
    header: Header, name: str, longest: int = LONGEST_TEXT, default: str | None = None
) -> str:
    """Return a text of at most ``longest`` characters.

    Raises:
        ValueError: missing without a default, another type, longer.
    """
    value = field_of(header, name, str, default)
    if len(value) > longest:
        raise ValueError(f"{name} has {len(value):,} characters; at most {longest:,} are read")
    return value
