"""Point-to-point messages between ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dualml.algorithms.communicator.engine import CommEngine
from dualml.algorithms.communicator.primitives import PendingWork, Tensor, query_implementation
from dualml.common.errors import CommunicationError, Unsupported

#: Largest tag: 31 bits, as in MPI and gloo.
MAX_TAG = 2**31 - 1


class PointToPoint(CommEngine):
    """Point-to-point messages of a `dualml.algorithms.communicator.Communicator`.

    Messages between one pair of ranks with one tag arrive in the order in which they were sent:
    post the receives, and wait for them, in that order. Receives with different tags may be posted
    in any order.
    """

    def exchange(
        self, send: Mapping[int, Tensor], receive: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Send to some ranks and receive from some, all at once.

        Only the ranks named need to take part; receives must match the order of the sends. A rank
        may call it with nothing at all; one that names itself or a rank outside the group gets a
        `CommunicationError`.

        Args:
            send: rank → contiguous tensor.
            receive: rank → buffer of the expected shape and type; it may be overwritten.

        Returns:
            rank → tensor that it sent.
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

    def isend(self, x: Tensor, peer: int, tag: int = 0) -> PendingWork:
        """Start sending the contiguous ``x``, which must not change until the ``wait`` of the
        returned handle returns.

        Args:
            peer: destination rank.
            tag: only an ``irecv`` with the same tag receives it; from 0 to 2³¹ - 1.

        Raises:
            CommunicationError: ``peer`` is this rank or outside the group, or the tag is out of
                range.
            Unsupported: a tag other than 0, where `implementation_of` reports no ``tags``.
        """
        self._check_peer(peer)
        self._check_tag(tag)
        nbytes, t = self.nbytes(x), self.traffic
        t.sent, t.bytes_sent = t.sent + 1, t.bytes_sent + nbytes
        if self.delay is not None:
            time.sleep(self.delay(nbytes, 0))
        begin: Callable[[], Any] = partial(self._isend, x, peer)
        work = self._timed("isend", partial(self._isend_tagged, x, peer, tag) if tag else begin)
        return PendingWork(lambda: self._timed("isend", work), lambda sent: sent, work)

    def irecv(self, buffer: Tensor, peer: int | None = None, tag: int = 0) -> PendingWork:
        """Start receiving into ``buffer``; the handle's ``wait`` returns the message.

        Args:
            buffer: of the expected shape and type; it may be overwritten.
            peer: source rank; None: any rank of the group. After the wait the handle's ``source``
                is the sender.
            tag: tag of the message, from 0 to 2³¹ - 1.

        Raises:
            CommunicationError: ``peer`` is this rank or outside the group, the tag is out of range,
                or the rank is alone in its group.
            Unsupported: a tag other than 0, or any rank, where `implementation_of` reports no
                ``tags`` or ``any_source``.
        """
        if peer is not None:
            self._check_peer(peer)
        elif self.size == 1:
            raise CommunicationError("a rank that is alone receives nothing")
        else:
            self._require_support("any_source")
        self._check_tag(tag)
        nbytes, t = self.nbytes(buffer), self.traffic
        t.received, t.bytes_received = t.received + 1, t.bytes_received + nbytes
        begin: Callable[[], Any]
        if peer is None or tag:
            begin = partial(self._irecv_tagged, buffer, peer, tag)
        else:
            begin = partial(self._irecv, buffer, peer)
        work = self._timed("irecv", begin)

        def apply_delay(got: Tensor) -> Tensor:
            if self.delay is not None:
                time.sleep(self.delay(0, nbytes))
            return got

        return PendingWork(lambda: self._timed("irecv", work), apply_delay, work, peer)

    def send(self, x: Tensor, peer: int, tag: int = 0) -> None:
        """Send ``x`` to rank ``peer``, and return when it may be changed again; see `isend`."""
        self.isend(x, peer, tag).wait()

    def recv(self, buffer: Tensor, peer: int | None = None, tag: int = 0) -> tuple[Tensor, int]:
        """Wait for a message with this tag from rank ``peer``, or from any rank if that is None;
        see `irecv`. ``buffer`` may be overwritten; use the message that is returned.

        Returns:
            The message and the rank that sent it.
        """
        coming = self.irecv(buffer, peer, tag)
        got = coming.wait()
        assert coming.source is not None
        return got, coming.source

    def _check_peer(self, peer: int) -> None:
        """Raise `CommunicationError` unless ``peer`` is another rank of the group."""
        if not 0 <= peer < self.size or peer == self.rank:
            raise CommunicationError(
                f"rank {self.rank} of {self.size} cannot exchange with rank {peer}"
            )

    def _check_tag(self, tag: int) -> None:
        """Raise `CommunicationError` for a tag outside 0 … `MAX_TAG`, and `Unsupported` for a tag
        other than 0 where the engine has no tags."""
        if not 0 <= tag <= MAX_TAG:
            raise CommunicationError(f"tags go from 0 to {MAX_TAG:,}; received {tag}")
        if tag:
            self._require_support("tags")

    def _require_support(self, primitive: str) -> None:
        """Raise `Unsupported`, with the reason, if this engine cannot execute ``primitive``."""
        how = query_implementation(self, primitive)
        if how.kind == "unsupported":
            raise Unsupported(f"{self.backend} on {self.device} has no {primitive}: {how.detail}")
