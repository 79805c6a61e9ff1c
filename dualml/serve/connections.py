"""Connections: how many there are at a time, and how long and how much each may send.

A visitor is a stranger until it has shown the token. Strangers have slots of their own; where all
are taken, the one that has waited longest makes room. So whoever holds the token always gets in,
however many others wait, and keeps a slot that no stranger can take.
"""

from __future__ import annotations

import contextlib
import io
import resource
import socket
import threading
import time

#: Strangers at a time, and visitors with the token; fewer where this process may have few files
#: open: pages need some, too.
STRANGERS, GUESTS = 32, 64
#: Bytes of a request's line and headers together.
MOST_HEAD = 32 * 1024


class HeadTooLong(Exception):
    """A request whose line and headers have more than `MOST_HEAD` bytes."""


class Connections:
    """The open connections."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strangers = dict[socket.socket, None]()  # the oldest first
        self._guests = set[socket.socket]()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files = 2**20 if limit == resource.RLIM_INFINITY else limit

    def admit(self, door: socket.socket) -> None:
        """Give a new visitor a slot of strangers."""
        with self._lock:
            while len(self._strangers) >= min(STRANGERS, max(1, self._files // 8)):
                self._end_oldest()
            self._strangers[door] = None

    def recognise(self, door: socket.socket) -> bool:
        """Move a visitor who has shown the token to the guests; False where those are too many."""
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
        """End the stranger that has waited longest, where the system has no descriptors left."""
        with self._lock:
            if self._strangers:
                self._end_oldest()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        with contextlib.suppress(OSError):  # its thread, which reads, closes it
            oldest.shutdown(socket.SHUT_RDWR)


class Head(io.RawIOBase):
    """What a visitor sends, as a stream: within a time and a size for each request, however slowly
    it comes."""

    def __init__(self, door: socket.socket) -> None:
        self.door, self.deadline, self.left = door, 0.0, 0

    def begin(self, seconds: float) -> None:
        """Allow for the next request so many seconds from now, its waiting included."""
        self.deadline, self.left = time.monotonic() + seconds, MOST_HEAD

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Receive what has come.

        Raises:
            TimeoutError: the time is over.
            HeadTooLong: there is more.
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
