"""Decoding of text from students' editors and archivers: UTF-8, UTF-16, GBK or Big5."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dualml.common.errors import escape_unprintable

#: Byte-order marks; that of UTF-32 begins as that of UTF-16 does.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Encodings of Chinese text, with the first bytes of their punctuation and frequent characters.
CHINESE = (
    ("gb18030", ((0xA1, 0xA3), (0xB0, 0xD7)), 0xA1),
    ("cp950", ((0xA1, 0xA3), (0xA4, 0xC6)), 0x40),
)
#: Smallest share of frequent characters in text of one of these encodings.
FREQUENT = 0.5
#: Pattern of the coding line of PEP 263, and of what may precede it.
CODING = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)([-\w.]+)", re.ASCII)
HEAD = 10_000  # characters in which it is looked for
COMMENT = re.compile(r"^[ \t\f]*(?:#.*)?$")
#: Encodings whose decoders take time quadratic in the length of the text.
SLOW = ("idna", "punycode")
#: Control characters kept in a displayed text: line breaks and tabs, and form feeds of programs.
ALLOWED_CONTROLS = "\n\t\f"
#: Largest number of characters kept of a submission's text; a file's source is kept completely.
MAX_TEXT_CHARS = 4000


def decode_program(content: bytes) -> str:
    """Decode a Python program as UTF-8 text with a coding line, if any, that says ``utf-8``, and
    line feeds as line ends.

    The encoding is given by a byte-order mark, else by the coding line of PEP 263, else it is
    UTF-8; other content is read as UTF-16 without a mark, GBK or Big5, whichever fits.

    Raises:
        SyntaxError: the coding line names no encoding that programs may have.
        ValueError: the bytes fit no encoding.
    """
    mark, name = next(((m, n) for m, n in MARKS if content.startswith(m)), (b"", ""))
    body = content[len(mark) :]
    if not name:
        name = declared_encoding(body) or ("utf-8" if b"\0" not in body else unmarked_utf16(body))
    try:
        text = body.decode(name)
    except UnicodeDecodeError:
        other = guess_encoding([body])
        if mark or other is None:
            raise
        text = body.decode(other)
    except LookupError:  # of an encoding that is none of text
        raise SyntaxError(f"unknown encoding: {name}") from None
    text.encode()  # a coding may give unpaired surrogates
    return without_coding(text.replace("\r\n", "\n").replace("\r", "\n"))


def declared_encoding(content: bytes) -> str:
    """Return Python's name of the encoding in a program's coding line, or an empty text.

    Raises:
        SyntaxError: the encoding is unknown, or slow to decode (`SLOW`).
    """
    for line in possible_coding_lines(content[:HEAD].decode("latin-1")):
        if match := CODING.match(line):
            try:
                name = codecs.lookup(match[2]).name
            except LookupError:
                name = ""
            if not name or name in SLOW:
                raise SyntaxError(f"unknown encoding: {match[2]}")
            return name
    return ""


def possible_coding_lines(text: str) -> list[str]:
    """Return the lines that may be a coding line: the first, and the second if the first is empty
    or a comment."""
    lines = re.split(r"\r\n|\r|\n", text[:HEAD], maxsplit=2)[:2]
    return lines if COMMENT.match(lines[0]) else lines[:1]


def without_coding(text: str) -> str:
    """Return a program's text with ``utf-8`` in place of the encoding in its coding line; unchanged
    without such a line."""
    lines = text.split("\n", 2)
    for number, line in enumerate(possible_coding_lines(text)):
        if CODING.match(line):
            lines[number] = CODING.sub(r"\1utf-8", line)
            break
    return "\n".join(lines)


def unmarked_utf16(content: bytes) -> str:
    """Return the name of the encoding of bytes without a mark: UTF-16 if at least a tenth of the
    bytes are zero, almost all of them at even or almost all at odd positions, since programs are
    mostly ASCII; else ``utf-8``."""
    zeros = [content[start::2].count(0) for start in (0, 1)]
    few, many = sorted(zeros)
    if len(content) % 2 or many * 10 < len(content) or few * 10 > many:
        return "utf-8"
    return "utf-16-le" if zeros[1] == many else "utf-16-be"


def guess_encoding(samples: Iterable[bytes]) -> str | None:
    """Return the name of the Chinese encoding, ``gb18030`` or ``cp950``, that all samples have, or
    None.

    Either encoding can decode most texts of the other, but not to frequent characters.
    """
    whole = b"\n".join(samples)
    found = []
    for name, leads, trail in CHINESE:
        try:
            text = whole.decode(name)
        except UnicodeDecodeError:
            continue
        found.append((frequent_share(text, name, leads, trail), name))
    share, name = max(found, key=lambda pair: pair[0], default=(0.0, ""))
    return name if share >= FREQUENT else None


def frequent_share(text: str, name: str, leads: Sequence[tuple[int, int]], trail: int) -> float:
    """Return the share of frequent characters of the encoding ``name`` among the non-ASCII ones; 0
    if there are none. Frequent are those of two bytes, the first in one of the ranges ``leads``,
    ends included, the second ``trail`` or more."""
    coded = [letter.encode(name) for letter in text if not letter.isascii()]
    many = sum(
        len(pair) == 2 and pair[1] >= trail and any(a <= pair[0] <= b for a, b in leads)
        for pair in coded
    )
    return many / len(coded) if coded else 0.0


def with_escapes(name: bytes) -> str:
    """Decode UTF-8, with other bytes as escapes like ``\\xff``."""
    return name.decode("utf-8", "backslashreplace")


def decode_names(
    names: Sequence[bytes], otherwise: Callable[[bytes], str] = with_escapes
) -> list[str]:
    """Decode names of files from one place: each as UTF-8, and the rest all in the one encoding
    that fits them.

    Args:
        otherwise: function that decodes names which fit no encoding.
    """
    other = guess_encoding(name for name in names if not is_utf8(name))
    return [
        name.decode() if is_utf8(name) else name.decode(other) if other else otherwise(name)
        for name in names
    ]


def is_utf8(name: bytes) -> bool:
    """Return whether a name is valid UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def presentable(value: Any, longest: int = MAX_TEXT_CHARS) -> Any:
    """Return a value whose texts any file, page and terminal can hold: control characters (but line
    breaks, tabs and form feeds) and unpaired surrogates become escapes, and long texts are
    truncated and end with their length. Tuples become lists, keys texts; the argument stays.

    Args:
        longest: largest number of characters kept of a text; of a key always `MAX_TEXT_CHARS`.
    """
    if isinstance(value, str):
        if len(value) > longest:
            value = f"{value[:longest]} … ({len(value):,})"
        return escape_unprintable(value, ALLOWED_CONTROLS)
    if isinstance(value, dict):
        return {presentable(str(k)): presentable(v, longest) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [presentable(inner, longest) for inner in value]
    return value
