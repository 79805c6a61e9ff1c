"""The context of a rank: what it needs to join the others, and a key-value store for small notes
between ranks that works without a process group.

Ranks write what they are about to do (join, broadcast, finish) and read what the others wrote. With
the store they find one another, agree on a plan before the frameworks communicate, and report which
rank is missing or does something else, where a collective could only hang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from dualml.common.errors import CommunicationError, UserError
from dualml.common.former_members import keep_former_members

POLL_S = 0.002


class Store(Protocol):
    """Key-value store between ranks: written once, read by all. Keys are file names (letters,
    digits, ``-_.``)."""

    def set(self, key: str, text: str) -> None:
        """Store the note ``text`` under ``key``, replacing an earlier one."""

    def get(self, key: str) -> str | None:
        """Return the note of ``key``, or None if there is none yet."""


@keep_former_members
class FileStore(Store):
    """A `Store` in a folder that all ranks can reach.

    Args:
        folder: created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def set(self, key: str, text: str) -> None:
        """Write ``text`` to the file ``key``, replacing it atomically: no reader sees half a
        note."""
        fresh = self.folder / f".{key}.{os.getpid()}"
        fresh.write_text(text, "utf-8")
        os.replace(fresh, self.folder / key)

    def get(self, key: str) -> str | None:
        """Return the content of the file ``key``, or None if it does not exist."""
        try:
            return (self.folder / key).read_text("utf-8")
        except FileNotFoundError:
            return None


@keep_former_members
class MemoryStore(Store):
    """A `Store` for ranks that are threads of one process."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}
        self._lock = threading.Lock()

    def set(self, key: str, text: str) -> None:
        """Store ``text`` under ``key`` in memory, replacing an earlier note."""
        with self._lock:
            self._notes[key] = text

    def get(self, key: str) -> str | None:
        """Return the note stored under ``key``, or None if there is none."""
        with self._lock:
            return self._notes.get(key)


def all_gather_via_store(
    store: Store, key: str, rank: int, ranks: Sequence[int], text: str, timeout: float, what: str
) -> Mapping[int, str]:
    """All-gather a note over the store: write ``text`` for this rank and return rank → note.

    Args:
        key: the same on every rank, used once.
        ranks: the ranks that take part, this one included.
        timeout: seconds to wait for the others.
        what: what is waited for, as the error message names it.

    Raises:
        CommunicationError: names the ranks that did not write in time.
    """
    store.set(f"{key}.{rank}", text)
    notes: dict[int, str] = {}
    end = time.monotonic() + timeout
    pause = POLL_S
    while True:
        for other in ranks:
            if other not in notes and (note := store.get(f"{key}.{other}")) is not None:
                notes[other] = note
        missing = [other for other in ranks if other not in notes]
        if not missing:
            return notes
        if time.monotonic() > end:
            raise CommunicationError(
                f"rank {rank} waited {timeout:g} s for {what}; missing: "
                f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {len(ranks)}"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def ranks_per_machine(machines: Sequence[str]) -> int:
    """Return the number of ranks on each machine, if all machines have the same number of
    consecutive ranks; else 0.

    Args:
        machines: machine of each rank, in the order of ranks; not empty.

    >>> ranks_per_machine(["a", "a", "b", "b"]), ranks_per_machine(["a", "b", "a", "b"])
    (2, 0)
    >>> ranks_per_machine(["a"] * 3)
    3
    """
    k = machines.count(machines[0])
    blocks = [set(machines[i : i + k]) for i in range(0, len(machines), k)]
    alike = len(machines) % k == 0 and all(len(block) == 1 for block in blocks)
    return k if alike and len(set(machines)) == len(blocks) else 0


RENDEZVOUS = ("file", "tcp", "env")


def check_rendezvous(text: str) -> None:
    """Check a rendezvous, such as ``auto`` or ``tcp://host:port``, and return nothing; raise
    `UserError` for a scheme that no backend supports, or a path or address that cannot be used. No
    connection is tried."""
    scheme, separator, rest = text.partition("://")
    if text != "auto" and not (scheme in RENDEZVOUS and separator):
        raise UserError(f"rendezvous {text!r}: use auto, file:///path, tcp://host:port or env://")
    if scheme == "file":
        path = Path(rest)
        if not path.is_absolute() or path.is_dir():
            raise UserError(f"rendezvous {text} names no file; use file:///path/to/file")
        if not path.parent.is_dir():
            raise UserError(f"rendezvous {text}: {path.parent} is not a folder")
    if scheme == "tcp":
        try:
            host, port = urlsplit(text).hostname, urlsplit(text).port
        except ValueError:
            host = port = None
        if not host or not port:
            raise UserError(f"rendezvous {text} names no port from 1 to 65535; use tcp://host:port")


@keep_former_members
@dataclass(frozen=True)
class RankContext:
    """Context of one rank of a trial: its number and how it reaches the other ranks.

    Args:
        rank, size: this rank, from 0, and the number of ranks.
        store: key-value store for notes between the ranks.
        rendezvous: how the framework's process group finds its ranks: ``auto`` (the framework's
            best way on one machine), ``file:///path``, ``tcp://host:port`` or ``env://``, which is
            what ``torchrun`` and ``msrun`` prepare.
        timeout: seconds that a rank waits for another, at start-up and inside a collective.
        key: distinguishes the groups of consecutive trials that share a rendezvous.
        check: whether the signature of every collective is compared over the store before it runs.
        host_staged: whether ranks that compute on accelerators send their messages through host
            memory.
        interface, address: network interface and address of this machine by which the others reach
            it; empty: the framework finds one.

    Raises:
        UserError: no such rank, or a rendezvous that `check_rendezvous` rejects.
    """

    rank: int
    size: int
    store: Store
    rendezvous: str = "auto"
    timeout: float = 60.0
    key: str = "0"
    check: bool = False
    interface: str = ""
    address: str = ""
    host_staged: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise UserError(f"rank {self.rank} of {self.size}: ranks go from 0 to size - 1")
        check_rendezvous(self.rendezvous)
