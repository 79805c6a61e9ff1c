"""Detection of saved files in a folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Seconds between two polls, and seconds without a change before a file counts as saved, since
#: editors write in pieces.
WATCH_INTERVAL_S, QUIET_S = 0.2, 0.1


def watch_changes(folder: Path, names: Sequence[str]) -> Iterator[list[str]]:
    """Yield all names first, and then, for ever, those of the files that have been saved or
    removed."""
    seen = {name: file_state(folder / name) for name in names}
    yield list(names)
    while True:
        time.sleep(WATCH_INTERVAL_S)
        now = {name: file_state(folder / name) for name in names}
        saved = [name for name in names if now[name] != seen[name]]
        if saved:
            time.sleep(QUIET_S)
            if {name: file_state(folder / name) for name in saved} == {n: now[n] for n in saved}:
                seen |= {name: now[name] for name in saved}
                yield saved


def file_state(path: Path) -> tuple[int, int]:
    """Return modification time and size of a file; zeros if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
