"""Text that people and other programs wrote, JSON and TOML, as values within limits.

What lies beyond a limit is no value of ours, and would end in a traceback somewhere else: in a
parser that calls itself, in an integer that no file and no tensor holds, in text that no terminal
prints. All raise `ValueError` with a short text; who reads says where it comes from.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from dualml.errors import plain

#: Lists and tables inside one another: a Python that parses, copies, validates and prints them
#: calls itself for each, some hundred times at most.
DEEPEST = 32
#: Whole numbers: those of 64 bits, which arrays, frameworks and other programs hold.
LARGEST = 2**63
#: Commas and brackets of a JSON text, each of which may begin a value of a hundred bytes.
MOST_VALUES = 5_000_000
#: Characters of a TOML text: an experiment has some thousand, and `tomllib` takes seconds for more.
LONGEST_TOML = 256 * 1024
#: Characters at the beginning of a line that may name a key.
LONGEST_KEY = 200
LONGEST_PLACE = 200  # characters of a name in a message

SURROGATE = re.compile("[\ud800-\udfff]")
#: A dotted key of more parts than tables may be inside one another; `tomllib` needs minutes for
#: one of a hundred thousand.
DOTTED = re.compile(rf"(?<![\w\"'.-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{DEEPEST},}}")
DIGITS = f"a whole number beyond 64 bits; the largest is {LARGEST - 1}"
NESTED = f"nested more than {DEEPEST} deep"


def from_json(text: bytes, finite: bool = True) -> Any:
    """The value of a JSON text: no NaN (where it must be ``finite``), no number beyond 64 bits,
    Unicode, not nested deep."""
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
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
    return within(value, finite)


def from_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text, within the same limits.

    Raises:
        tomllib.TOMLDecodeError: it is no TOML.
    """
    if len(text) > LONGEST_TOML:
        raise ValueError(f"{len(text):,} characters; at most {LONGEST_TOML:,} are read")
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
    return dict(within(table, finite=False))  # TOML has NaN and infinity: their field says why not


def within(value: Any, finite: bool = True) -> Any:
    """The value; `ValueError` where, and why, it is beyond the limits."""
    if (fault := problem(value, finite)) is not None:
        place, why = fault
        name = plain(".".join(map(str, place[:8])))
        raise ValueError(f"{name[:LONGEST_PLACE]}: {why}" if place else why)
    return value


def problem(value: Any, finite: bool, depth: int = 0) -> tuple[list[Any], str] | None:
    """Where, inside a value, it is beyond the limits, and how; None: nowhere."""
    if isinstance(value, dict | list):
        if depth == DEEPEST:
            return [], NESTED
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            fault = problem(inner, finite, depth + 1) or problem(key, finite)
            if fault is not None:
                return [key, *fault[0]], fault[1]
    elif finite and isinstance(value, float) and not math.isfinite(value):
        return [], "not a finite number"
    elif isinstance(value, int) and abs(value) >= LARGEST:
        return [], DIGITS
    elif isinstance(value, str) and not is_unicode(value):
        return [], "not Unicode text"
    return None


def is_unicode(text: str) -> bool:
    """Whether it can be encoded: not what stands for bytes that are no UTF-8 in a path."""
    return text.isascii() or SURROGATE.search(text) is None


def line_of(text: str, loc: Sequence[str]) -> int | None:
    """Line of a TOML text that says the key ``loc``, or the nearest table around it."""
    best, line_number, table = 0, None, list[str]()
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole[:LONGEST_KEY]
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
        key = re.match(r"\s*([\w.\-\"' ]+?)\s*=", line)
        if header:
            table = key_parts(header[1])
        here = table if header else [*table, *key_parts(key[1])] if key else []
        if best < len(here) <= len(loc) and list(loc[: len(here)]) == here:
            best, line_number = len(here), number
    return line_number


def key_parts(key: str) -> list[str]:
    """``a."b".c`` → its parts."""
    return [part.strip().strip("\"'") for part in key.split(".")]
