"""Numbers, texts and lengths of the protocol buffers' wire format.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from typing import BinaryIO

MAX_NAME_BYTES = 4096


def field_key(number: int) -> int:
    """Return the key that is written before field ``number`` of a message, for a text, bytes or a
    message."""
    return number << 3 | 2


def read_varint(file: BinaryIO) -> int:
    """Read a whole number of at most 64 bits from a file's position; raise `ValueError` if the file
    ends or the number is longer."""
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            raise ValueError("the file is truncated")
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
    raise ValueError("a number of more than 64 bits")


def read_end(file: BinaryIO, limit: int) -> int:
    """Read a length, and return the offset in the file at which that many bytes end; raise
    `ValueError` if that is beyond ``limit``."""
    length = read_varint(file)
    end = file.tell() + length
    if end > limit:
        raise ValueError(f"the file is truncated: {end - limit:,} bytes are missing")
    return end


def read_text(file: BinaryIO, end: int) -> str:
    """Read a text from the file's position to offset ``end``; raise `ValueError` if it has more
    than `MAX_NAME_BYTES` bytes or is not UTF-8."""
    count = end - file.tell()
    if count > MAX_NAME_BYTES:
        raise ValueError(f"a name of {count:,} bytes")
    return file.read(count).decode("utf-8")


def encode_varint(value: int) -> bytes:
    """Return a whole number, at least 0, as bytes in the format's variable length."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def encode_field(number: int, content: bytes) -> bytes:
    """Return the bytes of field ``number`` of a message: key, length and content."""
    return encode_varint(field_key(number)) + encode_varint(len(content)) + content
