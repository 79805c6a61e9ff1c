"""Point to point: what one rank tells another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dualml.communicator.engine import Engine
from dualml.communicator.how import Finish, Tensor, ask
from dualml.errors import CommunicationError, Unsupported

#: Largest tag: 31 bits, as MPI and gloo have them.
LARGEST_TAG = 2**31 - 1


class Messages(Engine):
    """The messages of a `dualml.communicator.Communicator`.

    Messages of one pair of ranks with one tag come in the order in which they were sent: ask for
    them, and wait for them, in that order. Those of different tags may be asked for in any order.
    """

    def exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Point to point: send to some ranks and receive from some, all at once.

        Only the ranks named need to take part; what one sends another must receive in the same
        order. A rank may call it with nothing at all.

        Args:
            send: rank → contiguous tensor.
            receive: rank → buffer of the shape and type expected; it may be overwritten.

        Returns:
            rank → what it sent.
        """
        for peer in (*send, *receive):
            self._check_peer(peer)
        t = self.traffic
        t.sent, t.received = t.sent + len(send), t.received + len(receive)
        out, into = (sum(map(self.nbytes, side.values())) for side in (send, receive))
        t.bytes_sent, t.bytes_received = t.bytes_sent + out, t.bytes_received + into
        if self.delay is not None and (send or receive):
            time.sleep(self.delay(out, into))
        return dict(self._timed("exchange", lambda: self._exchange(send, receive)))

    def isend(self, x: Tensor, peer: int, tag: int = 0) -> Finish:
        """Begin to send the contiguous ``x``, which stays as it is until the wait is over.

        Args:
            peer: rank that it is for.
            tag: it is received by ``irecv`` with the same tag alone; from 0 to 2³¹ - 1.

        Raises:
            Unsupported: a tag, where `how` says of ``tags`` that there are none.
        """
        self._check_peer(peer)
        self._check_tag(tag)
        nbytes, t = self.nbytes(x), self.traffic
        t.sent, t.bytes_sent = t.sent + 1, t.bytes_sent + nbytes
        if self.delay is not None:
            time.sleep(self.delay(nbytes, 0))
        begin: Callable[[], Any] = partial(self._isend, x, peer)
        work = self._timed("isend", partial(self._isend_tagged, x, peer, tag) if tag else begin)
        return Finish(lambda: self._timed("isend", work), lambda sent: sent, work)

    def irecv(self, buffer: Tensor, peer: int | None = None, tag: int = 0) -> Finish:
        """Begin to receive into ``buffer``; its wait returns what came.

        Args:
            buffer: of the shape and type expected; it may be overwritten.
            peer: rank that it is from; None: any rank of the group, and ``source`` of what is
                returned says after the wait which.
            tag: of the message.

        Raises:
            Unsupported: a tag, or any rank, where `how` says of ``tags`` or ``any_source`` that
                there is no such thing.
        """
        if peer is not None:
            self._check_peer(peer)
        elif self.size == 1:
            raise CommunicationError("a rank that is alone receives nothing")
        else:
            self._check_has("any_source")
        self._check_tag(tag)
        nbytes, t = self.nbytes(buffer), self.traffic
        t.received, t.bytes_received = t.received + 1, t.bytes_received + nbytes
        begin: Callable[[], Any]
        if peer is None or tag:
            begin = partial(self._irecv_tagged, buffer, peer, tag)
        else:
            begin = partial(self._irecv, buffer, peer)
        work = self._timed("irecv", begin)

        def late(got: Tensor) -> Tensor:
            if self.delay is not None:
                time.sleep(self.delay(0, nbytes))
            return got

        return Finish(lambda: self._timed("irecv", work), late, work, peer)

    def send(self, x: Tensor, peer: int, tag: int = 0) -> None:
        """Send ``x`` to rank ``peer``; see `isend`."""
        self.isend(x, peer, tag).wait()

    def recv(self, buffer: Tensor, peer: int | None = None, tag: int = 0) -> tuple[Tensor, int]:
        """Receive what rank ``peer``, or any rank, sends with this tag; see `irecv`.

        Returns:
            What came, and the rank that it is from.
        """
        coming = self.irecv(buffer, peer, tag)
        got = coming.wait()
        assert coming.source is not None
        return got, coming.source

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise CommunicationError(
                f"rank {self.rank} of {self.size} cannot exchange with rank {peer}"
            )

    def _check_tag(self, tag: int) -> None:
        if not 0 <= tag <= LARGEST_TAG:
            raise CommunicationError(f"tags go from 0 to {LARGEST_TAG:,}; received {tag}")
        if tag:
            self._check_has("tags")

    def _check_has(self, primitive: str) -> None:
        how = ask(self, primitive)
        if how.kind == "unsupported":
            raise Unsupported(f"{self.backend} on {self.device} has no {primitive}: {how.detail}")
