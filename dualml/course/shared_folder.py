"""A folder that isolated ranks share as on a network file system.

Every rank has a file system of its own. What a rank has written reaches the others at the next
collective that makes them wait for it, so that a missing barrier shows in every run and not only
by chance.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dualml.course.restricted import RestrictedCommunicator

#: Collectives after which every rank has waited for every other one, or for rank 0.
WAITS = frozenset({"barrier", "broadcast", "all_gather", "all_reduce"})
#: Shape of the collective that announces changes; no student's collective has it.
ANNOUNCEMENT = (1, 1, 1)
State = tuple[int, int, int]


class FileWatch:
    """Record of renamed and removed files of this process, by Python's audit hook.

    Attributes:
        renamed: source and destination of each rename.
        removed: paths of removed files.
    """

    def __init__(self) -> None:
        self.on = False
        self.renamed: list[tuple[str, str]] = []
        self.removed: list[str] = []
        sys.addaudithook(self.note)

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an audit event while the watch is on."""
        if not self.on:
            return
        if event == "os.rename":
            source, destination = (os.path.abspath(os.fsdecode(p)) for p in arguments[:2])
            self.renamed.append((source, destination))
        elif event == "os.remove":
            self.removed.append(os.path.abspath(os.fsdecode(arguments[0])))

    def begin(self) -> None:
        """Forget what was noted, and watch from now on."""
        self.renamed, self.removed, self.on = [], [], True


class SharedFolder:
    """One rank's copy of a shared folder.

    Args:
        path: an existing, empty folder of this rank.
        gather: function that returns every rank's array, given one of int64 or int32.
        rank: this rank.

    Attributes:
        written: names of the files that this rank itself has written or removed since `begin`.
    """

    def __init__(self, path: Path, gather: Callable[[Any], Sequence[Any]], rank: int) -> None:
        self.path, self.gather, self.rank = path, gather, rank
        self.known: dict[str, State] = {}
        self.written: set[str] = set()
        self.watch = FileWatch()

    def begin(self) -> None:
        """Count changes and watch renames from now on."""
        self.written = set()
        self.watch.begin()

    def changes(self) -> tuple[list[str], list[str]]:
        """Return the names of files that were written and removed since the last `synchronize`, and
        add them to ``written``."""
        now = self.scan()
        new = sorted(name for name, state in now.items() if self.known.get(name) != state)
        gone = sorted(self.known.keys() - now.keys())
        self.written |= {*new, *gone}
        return new, gone

    def scan(self) -> dict[str, State]:
        """Return the inode, size and time of change of each file in the folder, by name."""
        found = {}
        for place in self.path.iterdir():
            if place.is_file():
                about = place.stat()
                found[place.name] = about.st_ino, about.st_size, about.st_mtime_ns
        return found

    def synchronize(self) -> None:
        """Bring every rank's changes to all ranks, which call this together; of several ranks that
        wrote a file, the last one's counts."""
        watching, self.watch.on = self.watch.on, False
        new, gone = self.changes()
        contents = [(self.path / name).read_bytes() for name in new]
        header = {"new": [[n, len(c)] for n, c in zip(new, contents, strict=True)], "gone": gone}
        text = json.dumps(header).encode()
        whole = b"".join([len(text).to_bytes(4, "little"), text, *contents]) if new or gone else b""
        sizes = [int(np.ravel(n)[0]) for n in self.gather(self.announce(len(whole)))]
        if max(sizes):
            padded = np.zeros(max(sizes), np.int32)
            padded[: len(whole)] = np.frombuffer(whole, np.uint8)
            self.apply(
                [
                    bytes(np.asarray(a)[:size].astype(np.uint8))
                    for a, size in zip(self.gather(padded), sizes, strict=True)
                ]
            )
        self.known = self.scan()
        self.watch.on = watching

    @staticmethod
    def announce(number: int) -> Any:
        """Return a number as an int64 array of the shape `ANNOUNCEMENT`, which no student's
        collective has."""
        return np.full(ANNOUNCEMENT, number, np.int64)

    def apply(self, messages: Sequence[bytes]) -> None:
        """Write the files of other ranks' messages into this rank's folder, and remove those that
        they removed."""
        writer: dict[str, int] = {}
        contents: dict[str, bytes] = {}
        gone: set[str] = set()
        for rank, message in enumerate(messages):
            if not message:
                continue
            at = 4 + int.from_bytes(message[:4], "little")
            header = json.loads(message[4:at])
            gone.update(header["gone"])
            for name, size in header["new"]:
                writer[name], contents[name] = rank, message[at : at + size]
                at += size
        for name in gone - writer.keys():
            (self.path / name).unlink(missing_ok=True)
        for name, rank in writer.items():
            if rank != self.rank:
                (self.path / name).write_bytes(contents[name])


class FolderCommunicator(RestrictedCommunicator):
    """A communicator whose collectives bring the files of a shared folder to the other ranks.

    Attributes:
        waits: number of collectives that made ranks wait; `SharedFolder.begin` does not reset it.
    """

    def __init__(self, comm: Any, allowed: Sequence[str], folder: SharedFolder) -> None:
        super().__init__(comm, allowed)
        self._folder = folder
        self.waits = 0

    def __getattr__(self, name: str) -> Any:
        """Return an allowed attribute of the communicator; collectives that make ranks wait also
        synchronize the folder."""
        found = super().__getattr__(name)
        if name not in WAITS:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            result = found(*arguments, **options)
            self._folder.synchronize()
            self.waits += 1
            return result

        return call


def read_facts(folder: SharedFolder, path: Path) -> Mapping[str, int]:
    """Return what a rank did in the folder since `SharedFolder.begin`: ``written`` (whether it
    changed files), ``renamed`` (whether a file was renamed to ``path``), ``beside`` (whether it lay
    in the same folder), ``removed`` (whether ``path`` was removed or renamed), ``left`` (the number
    of other files in the folder). The watch ends with this call."""
    folder.changes()
    folder.watch.on = False
    sources = [source for source, there in folder.watch.renamed if there == str(path)]
    vacated = [*folder.watch.removed, *(source for source, _ in folder.watch.renamed)]
    return {
        "written": int(bool(folder.written)),
        "renamed": int(bool(sources)),
        "beside": int(all(os.path.dirname(source) == str(path.parent) for source in sources)),
        "removed": int(str(path) in vacated),
        "left": sum(name != path.name for name in folder.scan()),
    }
