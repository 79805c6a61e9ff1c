"""Listening sockets that stay open on errors and limit unauthenticated connections."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator

#: Pause in seconds after `accept` has failed, for example for lack of file descriptors.
PAUSE_S = 0.1
#: Error numbers of `accept` when the socket itself was closed or shut down.
CLOSED_ERRNOS = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


def accept_connections(door: socket.socket, serve: Callable[[socket.socket], object]) -> None:
    """Serve every connection in a thread of its own until ``door`` is closed.

    Callers that are gone already, and a shortage of file descriptors or threads, delay others only
    while they last.
    """
    while True:
        try:
            connection, _ = door.accept()
        except OSError as error:
            if error.errno in CLOSED_ERRNOS or door.fileno() < 0:
                return
            time.sleep(PAUSE_S)
            continue
        try:
            threading.Thread(target=serve, args=[connection], daemon=True).start()
        except RuntimeError:  # no more threads
            connection.close()
            time.sleep(PAUSE_S)


class UnauthenticatedConnections:
    """Connections that have not yet proved that they know the token.

    If there are ``most`` of them, a new one replaces the oldest: whoever knows the token proves it
    at once, so only others stay long enough to be the oldest.
    """

    def __init__(self, most: int) -> None:
        self.limit, self.connections = most, list[socket.socket]()
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def admit(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection inside the block, in which it authenticates; if there are too many,
        the oldest other one is shut down."""
        with self.lock:
            oldest = self.connections.pop(0) if len(self.connections) >= self.limit else None
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
