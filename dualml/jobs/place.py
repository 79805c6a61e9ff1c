"""Where jobs are kept, and which there are, by their folders alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dualml.files import is_regular

#: The folder of all jobs, in place of the user's data folder.
VARIABLE = "DUALML_JOBS"
#: In the folder of each.
STATE_NAME = "state.json"
NUMBER = re.compile("[1-9][0-9]{0,8}")


def home() -> Path:
    """Where jobs are kept."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(data) / "dualml/jobs"


def numbers(path: Path | None = None) -> list[int]:
    """Of all jobs, the oldest first.

    Args:
        path: where they are kept; `home` by default.
    """
    path = path or home()
    if not path.is_dir():
        return []
    folders = {number: p for p in path.iterdir() if (number := number_of(p)) is not None}
    return sorted(n for n, folder in folders.items() if is_regular(folder / STATE_NAME))


def number_of(folder: Path) -> int | None:
    """The job that a folder is of; None for a name that dualml gives no folder."""
    return int(folder.name) if NUMBER.fullmatch(folder.name) else None
