"""Messages between stages: sent without waiting, received in the order in which they were sent.

Some engines have no tags and deliver messages of a pair of ranks in order. The schedule fixes the
order in which every rank sends, so the receiver knows which message comes next, posts the receive
ahead of time, and keeps messages that it does not need yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dualml.algorithms.communicator import Communicator
from dualml.backend.stage import Tensor

Key = tuple[str, int, int]  # "F" or "B" of a stage and a micro-batch
POSTED_RECEIVES = 2  # receives posted ahead of time per rank


class Mailbox:
    """The messages of one rank in one update; making it posts the first receives.

    Args:
        comm: communicator of all ranks.
        incoming: rank → messages that it will send, in order: key, stage whose output shape the
            message has, and number of samples.
        make_buffer: allocates a receive buffer from that stage and number of samples.
    """

    def __init__(
        self,
        comm: Communicator,
        incoming: Mapping[int, Sequence[tuple[Key, int, int]]],
        make_buffer: Callable[[int, int], Tensor],
    ) -> None:
        self.comm, self.make_buffer = comm, make_buffer
        self.expected = {peer: deque(messages) for peer, messages in incoming.items()}
        self.pending_receives: dict[int, deque[tuple[Key, Any]]] = {
            peer: deque() for peer in incoming
        }
        self.received: dict[Key, Tensor] = {}
        self.pending_sends: list[Any] = []
        for peer in incoming:
            self.post_receives(peer)

    def post_receives(self, peer: int) -> None:
        """Post receives from rank ``peer`` until `POSTED_RECEIVES` are pending or none is
        expected."""
        while self.expected[peer] and len(self.pending_receives[peer]) < POSTED_RECEIVES:
            key, *size = self.expected[peer].popleft()
            self.pending_receives[peer].append(
                (key, self.comm.irecv(self.make_buffer(*size), peer))
            )

    def send(self, key: Key, x: Tensor, peer: int) -> None:
        """Start sending ``x`` to rank ``peer``; a message to this rank itself is delivered at once
        under ``key``."""
        if peer == self.comm.rank:
            self.received[key] = x
        else:
            self.pending_sends.append(self.comm.isend(x, peer))

    def receive(self, key: Key, peer: int) -> Tensor:
        """Wait for the message ``key`` from rank ``peer`` and return its tensor; earlier messages
        of that rank are kept for later calls."""
        while key not in self.received:
            came, pending = self.pending_receives[peer].popleft()
            self.post_receives(peer)
            self.received[came] = pending.wait()
        return self.received.pop(key)

    def close(self) -> None:
        """Wait until every message has been sent."""
        for pending in self.pending_sends:
            pending.wait()
        self.pending_sends.clear()
