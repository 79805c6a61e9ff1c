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
STRANGERS, GUESTS = 32, 64
#: Maximum bytes of a request's line and headers together.
MOST_HEAD = 32 * 1024


class HeadTooLong(Exception):
    """Raised when the line and headers of a request exceed `MOST_HEAD` bytes."""


class Connections:
    """The open connections, in slots for strangers and for guests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strangers = dict[socket.socket, None]()  # the oldest first
        self._guests = set[socket.socket]()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = 2**20 if limit == resource.RLIM_INFINITY else limit

    def admit(self, door: socket.socket) -> None:
        """Add a new connection as a stranger, and close the oldest strangers if the slots are
        full."""
        with self._lock:
            while len(self._strangers) >= min(STRANGERS, max(1, self._files // 8)):
                self._end_oldest()
            self._strangers[door] = None

    def recognise(self, door: socket.socket) -> bool:
        """Move a connection that has shown the token to the guests; return False if those are
        full."""
        with self._lock:
            if door in self._guests:
                return True
            if len(self._guests) >= min(GUESTS, self._files // 4) or door not in self._strangers:
                return False
            del self._strangers[door]
            self._guests.add(door)
            return True

    def leave(self, door: socket.socket) -> None:
        """Free the slot of a connection that has ended."""
        with self._lock:
            self._strangers.pop(door, None)
            self._guests.discard(door)

    def make_room(self) -> None:
        """Close the stranger that has waited longest, because the system has no descriptors
        left."""
        with self._lock:
            if self._strangers:
                self._end_oldest()

    def _end_oldest(self) -> None:
        """Shut down the stranger that has waited longest."""
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        with contextlib.suppress(OSError):  # its reading thread closes it
            oldest.shutdown(socket.SHUT_RDWR)


class Head(io.RawIOBase):
    """Raw stream of a client's requests, with a time limit and a size limit per request."""

    def __init__(self, door: socket.socket) -> None:
        self.door, self.deadline, self.left = door, 0.0, 0

    def begin(self, seconds: float) -> None:
        """Start the limits of the next request: ``seconds`` from now, waiting included."""
        self.deadline, self.left = time.monotonic() + seconds, MOST_HEAD

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Receive the bytes that are available.

        Raises:
            TimeoutError: the time limit is over.
            HeadTooLong: the size limit is exceeded.
        """
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the time for a request is over")
        if self.left <= 0:
            raise HeadTooLong
        self.door.settimeout(seconds)
        count = self.door.recv_into(buffer, min(len(buffer), self.left))
        self.left -= count
        return count
