"""Sockets that others connect to: open whatever happens, and with few strangers at a time."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator

#: After `accept` has failed, for want of file descriptors for example.
PAUSE_S = 0.1
#: What `accept` raises when the socket itself was closed or shut down.
CLOSED = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


def accept_each(door: socket.socket, serve: Callable[[socket.socket], object]) -> None:
    """Serve every connection in a thread of its own until ``door`` is closed.

    A caller that is gone already, or a process that has no file descriptor or thread left, keeps
    nobody out for longer than that lasts.
    """
    while True:
        try:
            connection, _ = door.accept()
        except OSError as error:
            if error.errno in CLOSED or door.fileno() < 0:
                return
            time.sleep(PAUSE_S)
            continue
        try:
            threading.Thread(target=serve, args=[connection], daemon=True).start()
        except RuntimeError:  # no more threads
            connection.close()
            time.sleep(PAUSE_S)


class Strangers:
    """Connections of those who have not proved yet that they know the token.

    Where there are ``most``, a new one replaces the oldest: whoever knows the token proves it at
    once, and only who does not stays long enough to be the oldest.
    """

    def __init__(self, most: int) -> None:
        self.most, self.connections = most, list[socket.socket]()
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def admit(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection while it proves itself."""
        with self.lock:
            oldest = self.connections.pop(0) if len(self.connections) >= self.most else None
            self.connections.append(connection)
        if oldest is not None:
            with contextlib.suppress(OSError):  # it has just gone
                oldest.shutdown(socket.SHUT_RDWR)
        try:
            yield
        finally:
            with self.lock:
                if connection in self.connections:
                    self.connections.remove(connection)
