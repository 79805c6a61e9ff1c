"""Parse JSON and TOML from people and other programs into values within limits.

A value beyond a limit is refused here, because it would fail with a traceback elsewhere: in a
recursive parser, in an integer that no file or tensor holds, in text that no terminal prints. All
functions raise `ValueError` with a short text; the caller adds where the text comes from.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from dualml.common.errors import escape_unprintable
from dualml.common.json_types import JsonObject

#: Maximum depth of nested lists and tables: parsing, copying, validating and printing them
#: recurses for each level, and Python's recursion is limited.
MAX_DEPTH = 32
#: Bound of integers: 64 bits, as in arrays, frameworks and other programs.
INTEGER_BOUND = 2**63
#: Maximum commas and brackets of a JSON text, each of which may begin a value of a hundred bytes.
MAX_VALUES = 5_000_000
#: Maximum characters of a TOML text: an experiment has some thousand; more take seconds to parse.
MAX_TOML_CHARS = 256 * 1024
#: Characters at the beginning of a line that may name a key.
MAX_KEY_CHARS = 200
MAX_PLACE_CHARS = 200  # characters of a name in a message

SURROGATE = re.compile("[\ud800-\udfff]")
#: A dotted key with more parts than `MAX_DEPTH`; `tomllib` needs minutes for
#: one of a hundred thousand.
DOTTED = re.compile(rf"(?<![\w\"'.-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{MAX_DEPTH},}}")
DIGITS = f"a whole number beyond 64 bits; the largest is {INTEGER_BOUND - 1}"
NESTED = f"nested more than {MAX_DEPTH} deep"


def from_json(text: bytes, finite: bool = True) -> Any:
    """Parse a JSON text: UTF-8, integers of 64 bits, limited depth, no NaN if ``finite``.

    Raises:
        ValueError: the text is not JSON, or exceeds a limit.
    """
    if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(NESTED) from None
    except UnicodeDecodeError:
        raise ValueError("not text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    except ValueError:  # Python reads no integer of more than 4300 digits
        raise ValueError(DIGITS) from None
    return check_limits(value, finite)


def from_toml(text: str) -> JsonObject:
    """Parse a TOML text within the limits of `from_json`; NaN and infinity are allowed.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML; a `ValueError` too.
        ValueError: the text exceeds a limit.
    """
    if len(text) > MAX_TOML_CHARS:
        raise ValueError(f"{len(text):,} characters; at most {MAX_TOML_CHARS:,} are read")
    if DOTTED.search(text):
        raise ValueError(NESTED)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ValueError(NESTED) from None
    except ValueError:
        raise ValueError(DIGITS) from None
    return dict(check_limits(table, finite=False))  # TOML has NaN; fields may refuse it


def check_limits(value: Any, finite: bool = True) -> Any:
    """Return the value unchanged, or raise `ValueError` with place and reason if it exceeds a
    limit."""
    if (fault := find_violation(value, finite)) is not None:
        place, why = fault
        name = escape_unprintable(".".join(map(str, place[:8])))
        raise ValueError(f"{name[:MAX_PLACE_CHARS]}: {why}" if place else why)
    return value


def find_violation(value: Any, finite: bool, depth: int = 0) -> tuple[list[Any], str] | None:
    """Return path (keys and indices) and reason of the first value beyond the limits, or None.

    Refused are nesting deeper than `MAX_DEPTH`, integers beyond 64 bits, text that is not Unicode,
    and floats that are not finite if ``finite``. ``depth`` is that of ``value`` itself.
    """
    if isinstance(value, dict | list):
        if depth == MAX_DEPTH:
            return [], NESTED
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            fault = find_violation(inner, finite, depth + 1) or find_violation(key, finite)
            if fault is not None:
                return [key, *fault[0]], fault[1]
    elif finite and isinstance(value, float) and not math.isfinite(value):
        return [], "not a finite number"
    elif isinstance(value, int) and abs(value) >= INTEGER_BOUND:
        return [], DIGITS
    elif isinstance(value, str) and not is_unicode(value):
        return [], "not Unicode text"
    return None


def is_unicode(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8, that is, has no unpaired surrogates."""
    return text.isascii() or SURROGATE.search(text) is None


def find_line(text: str, loc: Sequence[str]) -> int | None:
    """Return the line, from 1, of a TOML text that sets the key ``loc``, or that of its nearest
    parent table; None if there is neither. Keys within inline tables and ``[[arrays]]`` of tables
    are not found."""
    best, line_number, table = 0, None, list[str]()
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole[:MAX_KEY_CHARS]
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
        key = re.match(r"\s*([\w.\-\"' ]+?)\s*=", line)
        if header:
            table = split_key(header[1])
        here = table if header else [*table, *split_key(key[1])] if key else []
        if best < len(here) <= len(loc) and list(loc[: len(here)]) == here:
            best, line_number = len(here), number
    return line_number


def split_key(key: str) -> list[str]:
    """Split a dotted TOML key into its parts: ``a."b".c`` → ``["a", "b", "c"]``.

    Dots within quotes split too: the parts are only compared with known keys.
    """
    return [part.strip().strip("\"'") for part in key.split(".")]
