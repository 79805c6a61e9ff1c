"""Files that are read again only when they have changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from dualml.errors import UserError

T = TypeVar("T")
#: Values that are kept.
MOST = 20_000
#: Of a file: its number, which another file in its place does not have, size, and last change.
Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """None where there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class Entry:
    """A value, and the state of its files that it was made of; several threads may want it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    filled: bool = False
    state: Any = None
    value: Any = None


@dataclass
class Cache:
    """What was made of files, while they stay as they are."""

    _kept: OrderedDict[Any, Entry] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: Any, state: Any, make: Callable[[], T]) -> T:
        """What ``make`` gave for this state of ``key``; a `UserError` is raised again, too.

        Only those who want the same key wait for one another.
        """
        with self._lock:
            entry = self._kept.setdefault(key, Entry())
            self._kept.move_to_end(key)
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        with entry.lock:
            if not entry.filled or entry.state != state:
                try:
                    entry.value = make()
                except UserError as error:
                    entry.value = error
                entry.state, entry.filled = state, True
            value = entry.value
        if isinstance(value, UserError):
            raise value.with_traceback(None)  # else it grows with every look
        return cast(T, value)

    def read(self, path: Path, read: Callable[[Path], T]) -> T:
        """``read`` of the file's folder, as the readers of `dualml.store` are given it."""
        return self.of((path, read), stamp(path), lambda: read(path.parent))

    def knows(self, path: Path, read: Callable[[Path], T]) -> bool:
        """Whether the file need not be read."""
        with self._lock:
            kept = self._kept.get((path, read))
        return kept is not None and kept.filled and kept.state == stamp(path)
