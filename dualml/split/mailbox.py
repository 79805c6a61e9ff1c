"""Messages between stages: sent without waiting, received in the order in which they were sent.

Some engines know no tags, and take messages of a pair of ranks in order. The schedule says what
every rank sends in which order: so a receiver knows what comes next, asks for it ahead of time, and
keeps what it does not need yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dualml.backend.stage import Tensor
from dualml.communicator import Communicator

Key = tuple[str, int, int]  # "F" or "B" of a stage and a micro-batch
AHEAD = 2  # messages asked for before they are needed, of each rank


class Mailbox:
    """One rank's messages in one update.

    Args:
        incoming: rank → the messages it will send, in its order: keys, and of what stage and how
            many samples they are.
        empty: makes a buffer for such a message.
    """

    def __init__(
        self,
        comm: Communicator,
        incoming: Mapping[int, Sequence[tuple[Key, int, int]]],
        empty: Callable[[int, int], Tensor],
    ) -> None:
        self.comm, self.empty = comm, empty
        self.expected = {peer: deque(messages) for peer, messages in incoming.items()}
        self.asked: dict[int, deque[tuple[Key, Any]]] = {peer: deque() for peer in incoming}
        self.kept: dict[Key, Tensor] = {}
        self.sending: list[Any] = []
        for peer in incoming:
            self.ask(peer)

    def ask(self, peer: int) -> None:
        while self.expected[peer] and len(self.asked[peer]) < AHEAD:
            key, *size = self.expected[peer].popleft()
            self.asked[peer].append((key, self.comm.irecv(self.empty(*size), peer)))

    def send(self, key: Key, x: Tensor, peer: int) -> None:
        """Begin to send; to oneself at once."""
        if peer == self.comm.rank:
            self.kept[key] = x
        else:
            self.sending.append(self.comm.isend(x, peer))

    def take(self, key: Key, peer: int) -> Tensor:
        """The message, when it is there."""
        while key not in self.kept:
            came, pending = self.asked[peer].popleft()
            self.ask(peer)
            self.kept[came] = pending.wait()
        return self.kept.pop(key)

    def close(self) -> None:
        """Wait until everything has been sent."""
        for pending in self.sending:
            pending.wait()
        self.sending.clear()
