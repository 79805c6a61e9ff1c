"""Files written whole or not at all, and strict JSON."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


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
        fresh.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(finite(value), indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
