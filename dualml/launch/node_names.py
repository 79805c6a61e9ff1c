"""Number of this node and address of the first one, as container engines and clusters provide
them."""

from __future__ import annotations

import socket
import time

from dualml.common.errors import UserError

#: Seconds until the first node's name must be known: its image may have to be pulled first.
KNOWN_S = 600.0
POLL_S = 1.0


def parse_node_number(text: str) -> int:
    """Return the number of a node as an integer, from a text such as ``2``, or a sum such as
    ``1+0`` where an engine counts in groups.

    Raises:
        UserError: it is something else.
    """
    try:
        return sum(int(part) for part in text.split("+"))
    except ValueError:
        raise UserError(f"--node {text!r}: the engine did not say which node this is") from None


def wait_for_host(host: str, limit: float = KNOWN_S) -> str:
    """Wait until the name of a host can be resolved, whether it answers or not; return its address.

    Raises:
        UserError: it cannot, after ``limit`` seconds.
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
