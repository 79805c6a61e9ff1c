"""Limit the number of connections, and the time and size of each request.

A connection is a stranger until it has shown the token, then a guest. Strangers have slots of their
own; if all are taken, the one that has waited longest is closed. So the holder of the token always
gets in, however many others wait, and keeps a slot that no stranger can take.
"""

from __future__ import annotations

import contextlib
import io
import resource
import socket
import threading
import time

#: Maximum number of connections before and after authentication; fewer if this process may open few
#: files, because pages need some, too.
MAX_STRANGERS, MAX_GUESTS = 32, 64
#: Maximum bytes of a request's line and headers together.
MAX_HEAD_BYTES = 32 * 1024


class HeadTooLong(Exception):
    """Raised when the line and headers of a request exceed `MAX_HEAD_BYTES` bytes."""


class Connections:
    """The open connections, in slots of two kinds: for strangers, which have not shown the token
    yet, and for guests, which have. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strangers = dict[socket.socket, None]()  # the oldest first
        self._guests = set[socket.socket]()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = 2**20 if limit == resource.RLIM_INFINITY else limit

    def admit(self, sock: socket.socket) -> None:
        """Add a new connection as a stranger, which has not shown the token, and shut down the
        oldest strangers if the slots are full."""
        with self._lock:
            while len(self._strangers) >= min(MAX_STRANGERS, max(1, self._files // 8)):
                self._end_oldest()
            self._strangers[sock] = None

    def authenticate(self, sock: socket.socket) -> bool:
        """Move a connection that has shown the token to the guests and return True, also for one
        that is a guest already; return False if their slots are full, or the connection has been
        dropped."""
        with self._lock:
            if sock in self._guests:
                return True
            if (
                len(self._guests) >= min(MAX_GUESTS, self._files // 4)
                or sock not in self._strangers
            ):
                return False
            del self._strangers[sock]
            self._guests.add(sock)
            return True

    def release(self, sock: socket.socket) -> None:
        """Free the slot of a connection that has ended."""
        with self._lock:
            self._strangers.pop(sock, None)
            self._guests.discard(sock)

    def drop_oldest(self) -> None:
        """Shut down the stranger, a connection without token, that has waited longest, if there is
        one, because the system has no descriptors left."""
        with self._lock:
            if self._strangers:
                self._end_oldest()

    def _end_oldest(self) -> None:
        """Shut down the stranger that has waited longest."""
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        with contextlib.suppress(OSError):  # its reading thread closes it
            oldest.shutdown(socket.SHUT_RDWR)


class RequestStream(io.RawIOBase):
    """Raw stream of a client's requests, with a time limit and a size limit per request."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.deadline, self.bytes_left = sock, 0.0, 0

    def start_request(self, seconds: float) -> None:
        """Start the limits of the next request: ``seconds`` from now, waiting included, and
        `MAX_HEAD_BYTES` bytes."""
        self.deadline, self.bytes_left = time.monotonic() + seconds, MAX_HEAD_BYTES

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Receive the bytes that are available, waiting for at least one, and return their number;
        0 if the client has closed.

        Raises:
            TimeoutError: the time limit is over.
            HeadTooLong: the size limit is exceeded.
        """
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the time for a request is over")
        if self.bytes_left <= 0:
            raise HeadTooLong
        self.sock.settimeout(seconds)
        count = self.sock.recv_into(buffer, min(len(buffer), self.bytes_left))
        self.bytes_left -= count
        return count
