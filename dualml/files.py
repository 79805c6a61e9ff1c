"""Files written whole or not at all, and strict JSON."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml.errors import UserError


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


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


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
        raise UserError(f"{what}: {reason}") from None
