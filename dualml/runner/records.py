"""Records: one JSON line for each measured number of a trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dualml.files import finite


class Records:
    """Appends records to a JSONL file.

    Args:
        path: the file.
        size: keep only that many bytes of what is there (those of the checkpoint resumed from).
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self._file = path.open("ab")
        self._file.truncate(size)

    def write(self, metric: str, step: int, value: float, unit: str, **more: Any) -> None:
        record = {"metric": metric, "step": step, "value": value, "unit": unit, **more}
        line = json.dumps(finite(record), allow_nan=False)
        self._file.write(line.encode() + b"\n")

    def flush(self) -> int:
        """Put everything on disk; the size of the file in bytes."""
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole records of a file; a line cut off by an interruption is left out."""
    out = []
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return out
