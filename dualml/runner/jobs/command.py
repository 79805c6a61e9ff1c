"""Properties of a command line: its script, and a name for its folder."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

PYTHON = re.compile(r"python[\d.]*")


def script_path(command: Sequence[str]) -> str | None:
    """Return the script of a command line ``python SCRIPT …``, as written there; None if an option
    stands first (``-m``, ``-c``, also ``-u``), without arguments, and for other programs. The file
    need not exist."""
    if not PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    first = next(iter(command[1:]), "-")
    return None if first.startswith("-") else first


def folder_label(command: Sequence[str]) -> str:
    """Return a name for the job's folder: that of its script or program.

    >>> folder_label(["python", "code/my train.py", "--lr", "1"])
    'my-train'
    """
    name = Path(script_path(command) or command[0]).stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "command"
