"""Files written whole or not at all, strict JSON, and files read within limits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml import parse
from dualml.errors import UserError

LONGEST_REASON = 300  # characters of what a parser says: it may repeat the file
#: Bytes of a JSON or TOML file: the largest, of traces with many tensors, have some ten million.
MOST_TEXT = 64 * 2**20


def finite(value: Any) -> Any:
    """The value with every number that is not finite replaced by None: JSON has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def write_bytes(path: Path, content: bytes) -> None:
    """Replace ``path`` in one step; an interruption leaves the old file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        os.replace(fresh, path)
    except OSError as error:  # a failed write does not know the name of its file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):  # of a folder that cannot be written to
            fresh.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """The file, and what a process left of it that was killed while it wrote."""
    for there in (path, *path.parent.glob(f".{path.name}.*")):
        there.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_bytes(path: Path, most: int) -> bytes:
    """What a file holds.

    Args:
        most: bytes; a file that is larger is none of those that are read here.

    Raises:
        UserError: too large, or no file: a pipe may never end.
        OSError: it is missing or cannot be read.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise UserError(f"{path} is a pipe or a device; name a file")
    if status.st_size > most:
        raise UserError(f"{path} has {status.st_size:,} bytes; at most {most:,} are read")
    try:
        return path.read_bytes()
    except MemoryError:
        raise UserError(f"{path}: {status.st_size:,} bytes do not fit into memory") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file, within the limits of `dualml.parse`.

    Raises:
        UserError: beyond the limits, or no JSON.
        OSError: it is missing or cannot be read.
    """
    try:
        return parse.from_json(read_bytes(path, MOST_TEXT))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file, within the limits of `dualml.parse`.

    Raises:
        UserError: it cannot be read, is beyond the limits, or no TOML; the text has the line.
    """
    try:
        return parse.from_toml(read_bytes(path, MOST_TEXT).decode("utf-8"))
    except UserError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Whatever goes wrong when a file is read that was cut short or changed, as one line: parsers
    of archives, tensors and TOML raise some twenty kinds of errors, from zlib's to MemoryError.

    Args:
        what: the thing that is read, as in ``runs/x/plan: not a readable plan``.

    Raises:
        UserError: in place of what the reading raised.
    """
    try:
        yield
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"{what}: {error} is missing") from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{what}: {reason[:LONGEST_REASON]}") from None
