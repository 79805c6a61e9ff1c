"""Files that are read again only when they have changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

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
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class Cache:
    """What was made of files, while they stay as they are."""

    _kept: OrderedDict[Any, tuple[Any, Any]] = field(default_factory=OrderedDict)

    def of(self, key: Any, state: Any, make: Callable[[], T]) -> T:
        """What ``make`` gave for this state of ``key``; a `UserError` is raised again, too."""
        kept = self._kept.get(key)
        if kept is None or kept[0] != state:
            try:
                kept = state, make()
            except UserError as error:
                kept = state, error
            self._kept[key] = kept
            if len(self._kept) > MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        if isinstance(kept[1], UserError):
            raise kept[1]
        value: T = kept[1]
        return value

    def read(self, path: Path, read: Callable[[Path], T]) -> T:
        """``read`` of the file's folder, as the readers of `dualml.store` are given it."""
        return self.of((path, read), stamp(path), lambda: read(path.parent))

    def knows(self, path: Path, read: Callable[[Path], T]) -> bool:
        """Whether the file need not be read."""
        kept = self._kept.get((path, read))
        return kept is not None and kept[0] == stamp(path)
