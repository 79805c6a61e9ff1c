"""Which node this is, and where the first one is, as engines and clusters say it."""

from __future__ import annotations

import socket
import time

from dualml.errors import UserError

#: Until the name of the first node is known: its container may have to be fetched first.
KNOWN_S = 600.0
POLL_S = 1.0


def number(text: str) -> int:
    """``2``, or ``1+0`` where an engine counts nodes in groups."""
    try:
        return sum(int(part) for part in text.split("+"))
    except ValueError:
        raise UserError(f"--node {text!r}: the engine did not say which node this is") from None


def await_name(host: str, limit: float = KNOWN_S) -> str:
    """The address of a host, as soon as its name is known.

    Raises:
        UserError: it is not, after ``limit`` seconds.
    """
    end = time.monotonic() + limit
    while True:
        try:
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            if time.monotonic() > end:
                why = f"{error.strerror or error}; is the first node running?"
                raise UserError(f"{host} was not known for {limit:g} s: {why}") from None
        time.sleep(POLL_S)
