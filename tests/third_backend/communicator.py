"""A communicator between processes of one machine, over sockets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, ClassVar

import numpy as np

from dualml.algorithms.communicator import Communicator, Implementation, RankContext
from dualml.algorithms.communicator.rendezvous import all_gather_via_store
from dualml.common.errors import CommunicationError

OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class PeerConnection:
    """The connection to another rank. A separate thread sends, so that `send` never blocks."""

    def __init__(self, peer: int, connection: Connection, timeout: float) -> None:
        self.peer, self.connection, self.timeout = peer, connection, timeout
        self.waiting: queue.Queue[bytes | None] = queue.Queue()
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()

    def _send(self) -> None:
        while (message := self.waiting.get()) is not None:
            self.connection.send_bytes(message)

    def receive(self) -> bytes:
        """Return the next message from the peer; raise `CommunicationError` on a timeout or a
        closed connection."""
        if not self.connection.poll(self.timeout):
            raise CommunicationError(f"nothing came from rank {self.peer} in {self.timeout:g} s")
        try:
            return self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise CommunicationError(f"rank {self.peer} has gone: {error}") from None

    def close(self) -> None:
        self.waiting.put(None)
        self.sender.join(self.timeout)
        self.connection.close()


def connect(place: RankContext) -> SocketCommunicator:
    """Connect this rank with all others: every rank listens, and each calls the ranks below its
    own."""
    listener = Listener(None, backlog=place.size)
    addresses = all_gather_via_store(
        place.store,
        f"listens.{place.key}",
        place.rank,
        range(place.size),
        str(listener.address),
        place.timeout,
        "the ranks to listen",
    )
    lines = {}
    for peer in range(place.rank):
        connection = Client(addresses[peer])
        connection.send(place.rank)
        lines[peer] = PeerConnection(peer, connection, place.timeout)
    for _ in range(place.rank + 1, place.size):
        connection = listener.accept()
        peer = connection.recv()
        lines[peer] = PeerConnection(peer, connection, place.timeout)
    listener.close()
    return SocketCommunicator(place, lines)


class SocketCommunicator(Communicator):
    """A communicator for NumPy arrays between processes; every collective is composed of
    messages."""

    backend: ClassVar[str] = "single"

    def __init__(
        self,
        place: RankContext,
        lines: Mapping[int, PeerConnection],
        ranks: Sequence[int] | None = None,
    ) -> None:
        super().__init__(place, ranks)
        self.lines = lines

    def implementation_of(
        self, primitive: str, dtype: str = "float32", op: str = "sum"
    ) -> Implementation:
        if primitive in ("exchange", "barrier", "subgroup"):
            return Implementation("native", "sockets between processes")
        if primitive in ("tags", "any_source"):
            return Implementation("unsupported", "a line has one queue for each rank")
        if primitive == "asynchronous":
            return Implementation("unsupported", "who waits cannot compute meanwhile")
        return Implementation("composed", "messages over sockets, added up in the order of ranks")

    # --- tensors ----------------------------------------------------------------------------------

    def tensor(self, array: Any) -> Any:
        return np.array(array)

    def numpy(self, x: Any) -> Any:
        return np.array(x)

    def dtype(self, x: Any) -> str:
        return str(x.dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        with np.errstate(over="ignore"):
            return x.astype(dtype)

    def empty_like(self, x: Any) -> Any:
        return np.empty(x.shape, x.dtype)

    def copy(self, x: Any) -> Any:
        return np.array(x, order="C")

    def combine(self, a: Any, b: Any, op: str) -> Any:
        return OPS[op](a, b)

    def scale(self, x: Any, factor: float) -> Any:
        return x * x.dtype.type(factor)

    def slice(self, x: Any, start: int, stop: int) -> Any:
        return x[start:stop]

    def write(self, x: Any, start: int, value: Any, op: str) -> Any:
        place = slice(start, start + len(value))
        with np.errstate(over="ignore"):
            x[place] = x[place] + value if op == "add" else value
        return x

    def synchronize(self) -> None:
        """Do nothing: NumPy computes synchronously."""

    # --- messages ---------------------------------------------------------------------------------

    def _line(self, peer: int) -> PeerConnection:
        return self.lines[self.ranks[peer]]

    def _exchange(self, send: Mapping[int, Any], receive: Mapping[int, Any]) -> dict[int, Any]:
        """Send one array to each rank in ``send`` and return the arrays received, by rank."""
        for peer, x in send.items():
            self._line(peer).waiting.put(np.ascontiguousarray(x).tobytes())
        return {
            peer: np.frombuffer(self._line(peer).receive(), x.dtype).reshape(x.shape).copy()
            for peer, x in receive.items()
        }

    def _native(self, primitive: str, x: Any, **options: Any) -> Any:
        """Run a barrier, the only native primitive: exchange an empty message with every other
        rank."""
        others = [peer for peer in range(self.size) if peer != self.rank]
        for peer in others:
            self._line(peer).waiting.put(b"")
        for peer in others:
            self._line(peer).receive()

    def _subgroup(self, ranks: Sequence[int]) -> Communicator:
        return SocketCommunicator(self.context, self.lines, [self.ranks[r] for r in ranks])

    def close(self) -> None:
        for line in self.lines.values():
            line.close()
