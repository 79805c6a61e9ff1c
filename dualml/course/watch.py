"""Which files of a folder were saved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Seconds between two looks, and how long a file must be left alone: editors write in pieces.
LOOK_S, CALM_S = 0.2, 0.1


def changes(folder: Path, names: Sequence[str]) -> Iterator[list[str]]:
    """First all names; then, whenever some of these files have been saved, theirs. For ever."""
    seen = {name: state(folder / name) for name in names}
    yield list(names)
    while True:
        time.sleep(LOOK_S)
        now = {name: state(folder / name) for name in names}
        saved = [name for name in names if now[name] != seen[name]]
        if saved:
            time.sleep(CALM_S)
            if {name: state(folder / name) for name in saved} == {n: now[n] for n in saved}:
                seen |= {name: now[name] for name in saved}
                yield saved


def state(path: Path) -> tuple[int, int]:
    """Time and size of a file; zeros where it is missing."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
