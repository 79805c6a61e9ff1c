"""Where a rank stands: what it needs to know to join the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dualml.communicator.board import Board
from dualml.errors import UserError

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
    """

    rank: int
    size: int
    board: Board
    rendezvous: str = "auto"
    timeout: float = 60.0
    key: str = "0"
    check: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise UserError(f"rank {self.rank} of {self.size}: ranks go from 0 to size - 1")
        check_rendezvous(self.rendezvous)
