"""Validation of paths in a run folder that another machine sends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dualml.common.errors import escape_unprintable

#: Maximum characters and parts of a path.
MAX_PATH_CHARS, MAX_PARTS = 1000, 8
#: Maximum bytes of a name: file systems allow 255, and a file being written has a longer name.
MAX_PART_BYTES = 240
#: Pattern of a name: letters, digits, ``_.-``, and no dot at the beginning.
NAME_PATTERN = re.compile(r"[\w-][\w.-]*")
#: Names of devices on Windows, whatever follows the first dot.
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def is_file_name(text: str) -> bool:
    """Return whether ``text`` may name a file that another machine asks for: letters, digits,
    ``_.-``, no dot first, no name of a Windows device, at most `MAX_PART_BYTES` bytes."""
    known = NAME_PATTERN.fullmatch(text) and not RESERVED.fullmatch(text)
    return bool(known) and len(text.encode()) <= MAX_PART_BYTES


def resolve_in_run(root: Path, text: str, among: Sequence[str]) -> Path:
    """Return the path of a file or folder in a run folder, which need not exist, from the relative
    POSIX path ``text``.

    Args:
        root: the run folder.
        among: top-level folders of a run in which the path may lie.

    Raises:
        ValueError: the path is not allowed, or a symbolic link leads out of the folder.
    """
    parts = text.split("/") if len(text) <= MAX_PATH_CHARS else []
    named = 0 < len(parts) <= MAX_PARTS and parts[0] in among and all(map(is_file_name, parts[1:]))
    path = root.joinpath(*parts) if named else root
    if not named or not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{escape_unprintable(text[:100])!r} is no path of a run folder")
    return path
