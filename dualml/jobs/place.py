"""Where jobs are kept, and which there are, by their folders alone."""

from __future__ import annotations

import os
from pathlib import Path

#: The folder of all jobs, in place of the user's data folder.
VARIABLE = "DUALML_JOBS"
#: In the folder of each.
STATE_NAME = "state.json"


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
    names = [p.name for p in path.iterdir() if (p / STATE_NAME).is_file()]
    return sorted(int(name) for name in names if name.isdecimal())
