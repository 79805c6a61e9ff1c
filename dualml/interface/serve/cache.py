"""Cache values read from files until the files change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from dualml.common.errors import UserError

T = TypeVar("T")
#: Maximum number of cached values.
MAX_ENTRIES = 20_000
#: State of a file: inode (a replacement has another), size in bytes, time of last change in ns.
Stamp = tuple[int, int, int]


def file_stamp(path: Path) -> Stamp | None:
    """Return the state of a file, or None if there is no file or it cannot be looked up."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class CacheEntry:
    """A cached value and the state of the files it was made from, with a lock for threads."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    filled: bool = False
    state: Any = None
    value: Any = None


@dataclass
class Cache:
    """Cache of values made from files, valid while the files do not change."""

    _entries: OrderedDict[Any, CacheEntry] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get_or_create(self, key: Any, state: Any, make: Callable[[], T]) -> T:
        """Return the value of ``key``, calling ``make`` without arguments if there is none yet, or
        if it was made for another ``state``.

        A `UserError` of ``make`` is cached and raised again. Only threads that want the same key
        wait for one another.
        """
        with self._lock:
            entry = self._entries.setdefault(key, CacheEntry())
            self._entries.move_to_end(key)
            if len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        with entry.lock:
            if not entry.filled or entry.state != state:
                try:
                    entry.value = make()
                except UserError as error:
                    entry.value = error
                entry.state, entry.filled = state, True
            value = entry.value
        if isinstance(value, UserError):
            raise value.with_traceback(None)  # otherwise it grows with every request
        return cast(T, value)

    def read(self, path: Path, read: Callable[[Path], T]) -> T:
        """Return the result of ``read``, called with the file's folder, as readers of
        `dualml.experiment.store` expect; it is cached until the file changes."""
        return self.get_or_create((path, read), file_stamp(path), lambda: read(path.parent))

    def is_current(self, path: Path, read: Callable[[Path], T]) -> bool:
        """Return whether the cached value of the file is up to date."""
        with self._lock:
            kept = self._entries.get((path, read))
        return kept is not None and kept.filled and kept.state == file_stamp(path)
