"""Messages between the machines of a run: a header in JSON and bytes, over TCP, between two that
know the run's token.

Each proves that it knows the token, the caller first, by an HMAC-SHA-256 of numbers that both have
drawn; until then 4 kB are all that is read. What follows is not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from dualml.errors import CommunicationError, UserError

#: Where the token of a run is read from: a command's arguments are seen by everybody.
TOKEN = "DUALML_TOKEN"
SHORTEST = 8
PROTOCOL = 1
#: Two that meet say who they are within so many seconds.
HELLO_S = 10.0
#: An answer takes at most so long; rank 0 may be busy with other ranks.
ANSWER_S = 60.0
#: A machine that says nothing for so long, or does not even confirm what it is sent, is lost.
SILENT_S = 15.0
#: Bytes of a header, before and after the other is known, and of what follows it.
STRANGE, HEADER, BODY = 4096, 2**24, 2**26
#: A file goes in pieces of so many bytes.
PIECE = 2**24
READ = 2**20
SIZES = struct.Struct(">IQ")

Header = dict[str, Any]


def address_of(rendezvous: str) -> tuple[str, int]:
    """Host and port of ``tcp://HOST:PORT``, which `dualml.communicator.place` has checked."""
    url = urlsplit(rendezvous)
    return str(url.hostname), int(url.port or 0)


def loopback(host: str) -> bool:
    """Whether only this machine reaches the address that ``host`` has.

    Raises:
        UserError: the name is not known.
    """
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise UserError(f"host {host!r} is not known: {error.strerror or error}") from None
    return all(ipaddress.ip_address(text.partition("%")[0]).is_loopback for text in found)


def token_for(host: str, insecure: bool) -> bytes:
    """The token by which the machines of a run know one another; empty where none is needed.

    Raises:
        UserError: beyond the loopback without one, unless it is ``insecure``.
    """
    token = os.environ.get(TOKEN, "")
    if token and len(token) < SHORTEST:
        raise UserError(f"{TOKEN} has {len(token)} characters; a secret needs {SHORTEST} or more")
    if not token and not insecure and not loopback(host):
        raise UserError(
            f"{host} is open to the network: set {TOKEN} to one secret on all machines (python -c "
            "'import secrets; print(secrets.token_hex(16))' makes one), or say --insecure where "
            "you trust everybody in that network"
        )
    return token.encode()


class Wire:
    """One connection; messages are whole or not at all.

    Args:
        door: a connected socket; closed with this.
    """

    def __init__(self, door: socket.socket) -> None:
        self.door, self.known = door, False
        self.turn = threading.Lock()
        door.settimeout(HELLO_S)
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: the system of a busy process confirms, too
            limit = int(SILENT_S * 1000)
            door.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        text = json.dumps(header).encode()
        self.door.sendall(SIZES.pack(len(text), len(body)) + text)
        if body:
            self.door.sendall(body)

    def receive(self) -> tuple[Header, bytes]:
        """The next message.

        Raises:
            OSError: the connection ended or is silent for too long (`TimeoutError`).
            ValueError: what came is no message.
        """
        size, more = SIZES.unpack(self.read(SIZES.size))
        if size > (HEADER if self.known else STRANGE) or more > (BODY if self.known else 0):
            raise ValueError(f"a message of {size + more:,} bytes")
        header = json.loads(self.read(size))
        if not isinstance(header, dict):
            raise ValueError("a header that is no table")
        return header, self.read(more)

    def read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.door.recv(min(READ, size - len(parts)))
            if not part:
                raise ConnectionError("the connection ended")
            parts += part
        return bytes(parts)

    def ask(self, header: Mapping[str, Any], body: bytes = b"") -> tuple[Header, bytes]:
        """A message and the answer to it; threads take turns."""
        with self.turn:
            self.send(header, body)
            return self.receive()

    def close(self) -> None:
        self.door.close()


def proof(token: bytes, who: str, own: str, theirs: str) -> str:
    return hmac.new(token, f"{who} {own} {theirs}".encode(), hashlib.sha256).hexdigest()


def call(host: str, port: int, token: bytes, seconds: float) -> Wire:
    """Connect to rank 0's machine and prove to one another that the token is known.

    Raises:
        CommunicationError: nobody answers there within ``seconds``, or somebody else does.
    """
    where = f"{host}:{port}"
    try:
        wire = Wire(socket.create_connection((host, port), timeout=min(HELLO_S, seconds)))
    except OSError as error:
        raise CommunicationError(f"nobody answers at {where}: {reason(error)}") from None
    try:
        wire.door.settimeout(seconds)
        own = secrets.token_hex(32)
        wire.send({"dualml": PROTOCOL, "nonce": own})
        hello, _ = wire.receive()
        theirs = str(hello.get("nonce"))
        if hello.get("dualml") != PROTOCOL:
            raise CommunicationError(f"{where} speaks version {hello.get('dualml')} of dualml's "
                                     f"protocol; this is {PROTOCOL}")  # fmt: skip
        wire.send({"proof": proof(token, "rank", own, theirs)})
        answer, _ = wire.receive()
        right = proof(token, "hub", theirs, own)
        if not hmac.compare_digest(str(answer.get("proof")), right):
            own = "" if token else f", and this rank has none: set {TOKEN} to it"
            raise CommunicationError(f"{where} has another {TOKEN}{own}")
    except (OSError, ValueError) as error:
        wire.close()
        raise CommunicationError(f"{where} does not answer as dualml: {reason(error)}") from None
    except CommunicationError:
        wire.close()
        raise
    wire.known = True
    wire.door.settimeout(ANSWER_S)
    return wire


def answer(door: socket.socket, token: bytes) -> Wire | None:
    """The other end of `call`; None for somebody who does not know the token."""
    wire = Wire(door)
    try:
        hello, _ = wire.receive()
        own, theirs = secrets.token_hex(32), str(hello.get("nonce"))
        wire.send({"dualml": PROTOCOL, "nonce": own})
        given, _ = wire.receive()
        right = proof(token, "rank", theirs, own)
        if not hmac.compare_digest(str(given.get("proof")), right):
            wire.send({})
            wire.close()
            return None
        wire.send({"proof": proof(token, "hub", own, theirs)})
    except (OSError, ValueError):
        wire.close()
        return None
    wire.known = True
    return wire


def reason(error: BaseException) -> str:
    """In a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", "") or error) or type(error).__name__
