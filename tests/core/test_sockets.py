"""The bytes that this process has sent, as the system counts them."""

from __future__ import annotations

import contextlib
import socket

import pytest

from dualml.common.sockets import sent_bytes

MANY = 1 << 24


def test_what_is_written_counts_once_whether_it_was_read_or_not() -> None:
    before = sent_bytes()
    if before is None:
        pytest.skip("the system does not tell")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0] as theirs,
    ):
        ours.setblocking(False)
        written = 0
        with contextlib.suppress(BlockingIOError):  # until the queue is full
            while written < MANY:
                written += ours.send(bytes(100_000))
        assert 0 < written < MANY
        assert sent_bytes() == before + written
        read = 0
        while read < written:
            read += len(theirs.recv(1 << 20))
        assert sent_bytes() == before + written
        theirs.sendall(bytes(7))
        assert sent_bytes() == before + written + 7
    assert sent_bytes() == before
