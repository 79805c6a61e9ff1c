"""Paths inside of a run folder that another machine names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dualml.errors import plain

LONGEST, MOST_PARTS = 1000, 8
#: Bytes of a name: file systems take 255, and a file that is being written has a longer name.
LONGEST_PART = 240
#: Letters, digits, ``_.-``, and no dot at the beginning.
PART = re.compile(r"[\w-][\w.-]*")
#: Names of devices on Windows, whatever follows the first dot.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def is_name(text: str) -> bool:
    """Return whether ``text`` may name a file that another machine asks for."""
    known = PART.fullmatch(text) and not RESERVED.fullmatch(text)
    return bool(known) and len(text.encode()) <= LONGEST_PART


def place_in(root: Path, text: str, among: Sequence[str]) -> Path:
    """Return where a relative POSIX path leads in a run folder.

    Args:
        root: the run folder.
        among: what the path may begin with: folders of a run.

    Raises:
        ValueError: it is no such path, or a symbolic link leads out of the folder.
    """
    parts = text.split("/") if len(text) <= LONGEST else []
    named = 0 < len(parts) <= MOST_PARTS and parts[0] in among and all(map(is_name, parts[1:]))
    path = root.joinpath(*parts) if named else root
    if not named or not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{plain(text[:100])!r} is no path of a run folder")
    return path
