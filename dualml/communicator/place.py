"""Where a rank stands: what it needs to know to join the others."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.communicator.board import Board
from dualml.errors import UserError

RENDEZVOUS = ("file", "tcp", "env")


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
        scheme = self.rendezvous.partition(":")[0]
        if scheme not in ("auto", *RENDEZVOUS):
            raise UserError(
                f"rendezvous {self.rendezvous!r}: use auto, file:///path, tcp://host:port or env://"
            )
