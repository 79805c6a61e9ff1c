"""Where a rank stands: what it needs to know to join the others, and the board, small notes between
ranks that need no working process group.

Ranks post what they are about to do (join, broadcast, finish) and read what the others posted. It
serves to find one another, to agree on a plan before the frameworks are asked to communicate, and
to say which rank is missing or doing something else, where a collective could only hang.
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

from dualml.errors import CommunicationError, UserError

POLL_S = 0.002


class Board(Protocol):
    """Write once, read by all; keys are file names (letters, digits, ``-_.``)."""

    def post(self, key: str, text: str) -> None:
        """Write the note ``text``; a ``key`` that exists already is replaced."""

    def read(self, key: str) -> str | None:
        """The note, or None while there is none."""


class FileBoard(Board):
    """A `Board` in a folder that all ranks see.

    Args:
        folder: made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def post(self, key: str, text: str) -> None:
        fresh = self.folder / f".{key}.{os.getpid()}"
        fresh.write_text(text, "utf-8")
        os.replace(fresh, self.folder / key)

    def read(self, key: str) -> str | None:
        try:
            return (self.folder / key).read_text("utf-8")
        except FileNotFoundError:
            return None


class MemoryBoard(Board):
    """A `Board` for ranks that are threads of one process."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}
        self._lock = threading.Lock()

    def post(self, key: str, text: str) -> None:
        with self._lock:
            self._notes[key] = text

    def read(self, key: str) -> str | None:
        with self._lock:
            return self._notes.get(key)


def exchange_notes(
    board: Board, key: str, rank: int, ranks: Sequence[int], text: str, timeout: float, what: str
) -> Mapping[int, str]:
    """Post ``text`` for this rank and read that of every rank.

    Args:
        key: the same on every rank, used once.
        ranks: who takes part, this rank among them.
        timeout: seconds to wait for the others.
        what: what is waited for, as the error tells it.

    Raises:
        CommunicationError: ranks that did not post in time, by number.
    """
    board.post(f"{key}.{rank}", text)
    notes: dict[int, str] = {}
    end = time.monotonic() + timeout
    pause = POLL_S
    while True:
        for other in ranks:
            if other not in notes and (note := board.read(f"{key}.{other}")) is not None:
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


def per_machine(machines: Sequence[str]) -> int:
    """Ranks of each machine, where each has as many, next to one another; else 0.

    Args:
        machines: that of each rank, in the order of ranks.

    >>> per_machine(["a", "a", "b", "b"]), per_machine(["a", "b", "a", "b"]), per_machine(["a"] * 3)
    (2, 0, 3)
    """
    k = machines.count(machines[0])
    blocks = [set(machines[i : i + k]) for i in range(0, len(machines), k)]
    alike = len(machines) % k == 0 and all(len(block) == 1 for block in blocks)
    return k if alike and len(set(machines)) == len(blocks) else 0


RENDEZVOUS = ("file", "tcp", "env")


def check_rendezvous(text: str) -> None:
    """Raises `UserError` for a rendezvous that no backend can mean."""
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


@dataclass(frozen=True)
class Place:
    """One rank of a trial.

    Args:
        rank, size: this rank, from 0, and how many there are.
        board: notes between the ranks.
        rendezvous: how the framework's process group finds its ranks: ``auto`` (the framework's
            best way on one machine), ``file:///path``, ``tcp://host:port`` or ``env://``, which is
            what ``torchrun`` and ``msrun`` prepare.
        timeout: seconds any rank waits for another, at start-up and inside a collective.
        key: tells the groups of consecutive trials apart where they share a rendezvous.
        check: compare the signature of every collective over the board before it is executed.
        host_staged: whether ranks that compute on accelerators send their messages by host memory.
        interface, address: of this machine, by which the others are reached; empty: the framework
            finds one.

    Raises:
        UserError: no such rank, or a rendezvous that no backend can mean.
    """

    rank: int
    size: int
    board: Board
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
